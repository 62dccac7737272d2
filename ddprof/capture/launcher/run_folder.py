"""The run folder from the outside: created before the job starts, summed up after it ended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ddprof.capture import sidecar
from ddprof.capture.files.layout import (
    MANIFEST,
    RING_SUFFIX,
    SCHEMA,
    SIDECAR_SUFFIX,
    TRACE_SUFFIX,
    host_label,
    parse_stem,
)
from ddprof.capture.files.ring import read_ring
from ddprof.capture.files.storage import write_json
from ddprof.capture.launcher.liveness import runs_here

LATEST = "latest"
_WARM_STEPS = 2
_PHASES = ("data_ns", "forward_ns", "backward_ns", "optimizer_ns", "collective_ns")


@dataclass(frozen=True)
class RunFolder:
    """Where a run is kept. `fallback_reason` says why it is not where it was asked for."""

    path: Path
    manifest: Path
    fallback_reason: str | None = None


def create(parent: Path, name: str, now_s: float) -> RunFolder:
    """Make `<parent>/<utc>-<name>/` and point `latest` at it. A parent that cannot be written is replaced by the
    temporary
    folder: a read-only directory must not stop a job. Raises OSError if that fails as well."""
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
    job = shared_job_id()
    if job is not None:
        return join(parent / f"{label}-{job}")
    folder_name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now_s))}-{label}"
    reason = None
    try:
        path = _make(parent, folder_name)
    except OSError as error:
        reason = f"{parent} cannot be written ({error.strerror})"
        parent = Path(tempfile.gettempdir()) / "ddprof-runs"
        path = _make(parent, folder_name)
    _point_latest(parent, path)
    return RunFolder(path, path / MANIFEST, reason)


def shared_job_id() -> str | None:
    """What all tasks of `srun ddprof run` or `mpirun ddprof run` have in common: they share a folder."""
    step = os.environ.get("SLURM_STEP_ID")
    if step is not None and os.environ.get("SLURM_STEP_NUM_TASKS", os.environ.get("SLURM_NTASKS", "1")) != "1":
        return f"slurm{os.environ.get('SLURM_JOB_ID', '')}.{step}"
    namespace = os.environ.get("PMIX_NAMESPACE")
    if namespace and os.environ.get("OMPI_COMM_WORLD_SIZE", "1") != "1":
        return "mpi" + re.sub(r"[^A-Za-z0-9]+", "-", namespace).strip("-")
    return None


def join(path: Path) -> RunFolder:
    """Use a given folder, created if need be: several `ddprof run` of one job write into the same. Raises OSError."""
    path.mkdir(parents=True, exist_ok=True)
    manifest = path / MANIFEST
    try:
        manifest.open("x", encoding="utf-8").close()  # exactly one of them gets the main manifest, and leads
    except FileExistsError:
        manifest = path / f"manifest.{host_label()}.{os.getpid()}.json"
    return RunFolder(path.resolve(), manifest)


def _make(parent: Path, folder_name: str) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(100):
        path = parent / (folder_name if attempt == 0 else f"{folder_name}-{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path.resolve()
    raise FileExistsError(17, "a hundred runs of that name began in the same second", folder_name)


def _point_latest(parent: Path, path: Path) -> None:
    temporary = parent / f".{LATEST}.{os.getpid()}"
    with contextlib.suppress(OSError):  # a file system without links: the folder is still named on stderr
        temporary.symlink_to(path.name)
        os.replace(temporary, parent / LATEST)


def salvage(folder: Path) -> list[str]:
    """Make readable what a killed rank left; returns notes.

    Its step ring becomes part of its sidecar, temporary files go.
    """
    notes: list[str] = []
    for ring_path in sorted(folder.glob(f"*{RING_SUFFIX}")):
        if not _dead_here(ring_path.name):
            continue
        path = ring_path.with_name(ring_path.name.removesuffix(RING_SUFFIX) + SIDECAR_SUFFIX)
        with contextlib.suppress(OSError):
            notes.extend(_complete(path, ring_path))
    for leftover in folder.glob("*.tmp"):
        if not _dead_here(leftover.name):
            continue
        with contextlib.suppress(OSError):
            leftover.unlink()
            notes.append(f"{leftover.name}: removed, its writer died in the middle of it")
    return notes


def _dead_here(name: str) -> bool:
    """Whether a file's writer ran on this host and is gone: the folder may be shared with nodes that still run."""
    fields = parse_stem(name)
    if fields is None or fields["host"] != host_label():
        return False
    return not runs_here(int(fields["pid"] or 0))


def _complete(path: Path, ring_path: Path) -> list[str]:
    """Add the ring's steps to a sidecar whose process did not end in order; a ring that holds nothing more goes."""
    content = read_json(path)
    if content is not None and content.get("state") != "running":
        ring_path.unlink()
        return []
    try:
        ring = read_ring(ring_path)
    except ValueError as error:
        return [f"{error}"]
    if content is None:
        content = {"schema": SCHEMA, **ring.identity, "windows": [], "notes": []}
    known = {step["index"] for step in content.get("steps", [])}
    added = [sidecar.step_record(step) for step in ring.steps if step.number not in known]
    content["steps"] = sorted([*content.get("steps", []), *added], key=lambda step: int(step["index"]))
    content["steps_total"] = max(ring.written, len(content["steps"]))
    content["state"] = "killed"
    note = f"rank {content['rank']} did not end in order: its last {len(added)} steps come from its step ring"
    content["notes"] = [*content.get("notes", []), note]
    content["windows"] = _with_orphans(path, content)
    write_json(path, content)
    ring_path.unlink()
    return [note]


def _with_orphans(path: Path, content: dict[str, Any]) -> list[Any]:
    """Windows whose trace was written before the process died, though no sidecar could say so any more."""
    windows = list(content.get("windows") or [])
    known = {window.get("trace_path") for window in windows}
    stem = path.name.removesuffix(SIDECAR_SUFFIX)
    for trace in sorted(path.parent.glob(f"{stem}.*{TRACE_SUFFIX}*")):
        name = trace.name if trace.name.endswith(".gz") else trace.name + ".gz"
        if not trace.name.endswith(".tmp") and not known & {trace.name, name}:
            windows.append(
                {"first_step": None, "last_step": None, "start_ns": None, "end_ns": None, "trace_path": trace.name}
            )
    return windows


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, None if there is none that can be read."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


@dataclass(frozen=True)
class RunSummary:
    """What the ranks wrote."""

    ranks: tuple[int, ...]
    world_size: int | None
    hosts: dict[int, str]
    windows: int
    steps: int  # of the rank that made most
    versions: dict[str, Any]
    overhead: dict[str, Any]
    step_times: dict[int, dict[str, int]]  # rank -> median of its steps outside windows, phase by phase, ns
    notes: tuple[str, ...]


def summarize(folder: Path) -> RunSummary:
    """Read every sidecar of the folder."""
    hosts: dict[int, str] = {}
    versions: dict[str, Any] = {}
    overheads: list[dict[str, Any]] = []
    step_times: dict[int, dict[str, int]] = {}
    notes: dict[str, list[int]] = {}
    world_size: int | None = None
    windows = steps = 0
    for path in sorted(folder.glob(f"*{SIDECAR_SUFFIX}")):
        content = read_json(path)
        if content is None or parse_stem(path.name) is None:
            continue
        rank = int(content["rank"])
        hosts[rank] = str(content["host"])
        world_size = max(world_size or 0, int(content.get("world_size") or 0)) or None
        versions = content.get("versions") or versions
        overheads.append(content.get("overhead") or {})
        steps = max(steps, int(content.get("steps_total") or 0))
        step_times[rank] = _step_times(content.get("steps") or [])
        windows += sum(1 for window in content.get("windows") or [] if window.get("trace_path"))
        for note in content.get("notes") or []:
            notes.setdefault(str(note), []).append(rank)
    lines = tuple(f"{note} (ranks {','.join(map(str, ranks))})" for note, ranks in notes.items())
    known = {rank: times for rank, times in sorted(step_times.items()) if times}
    return RunSummary(
        tuple(sorted(hosts)), world_size, hosts, windows, steps, versions, _overhead(overheads), known, lines
    )


def _step_times(steps: list[dict[str, Any]]) -> dict[str, int]:
    """Medians over steps outside windows, the last one (it may be cut short) and the warm-up left out; {} without any.

    They are what is known of a rank that opens no window. `rest_ns` is taken step by step: on a busy machine the
    medians of step and phases are those of different steps, and their difference is time that nobody spent.
    """
    bare = [step for step in steps[_WARM_STEPS:-1] if not step.get("profiled")]
    if not bare:
        return {}
    lengths = [step["end_ns"] - step["start_ns"] for step in bare]
    medians = {name: int(median(step.get(name) or 0 for step in bare)) for name in _PHASES}
    known = [sum(step.get(name) or 0 for name in _PHASES) for step in bare]
    rest = median(max(0, length - phases) for length, phases in zip(lengths, known, strict=True))
    return {"step_ns": int(median(lengths)), **medians, "rest_ns": int(rest)}


def _overhead(overheads: list[dict[str, Any]]) -> dict[str, Any]:
    """The worst rank's: a job is as slow as its slowest rank."""
    merged: dict[str, Any] = {}
    for key in ("bare_step_ns", "profiled_step_ns", "own_ns_per_step"):
        values = [overhead[key] for overhead in overheads if overhead.get(key) is not None]
        merged[key] = max(values) if values else None
    bare, profiled, own = merged["bare_step_ns"], merged["profiled_step_ns"], merged["own_ns_per_step"]
    merged["window_frac"] = (profiled - bare) / bare if bare and profiled else None
    merged["own_frac"] = own / bare if bare and own is not None else None
    return merged
