"""Makes readable what killed ranks left in the run folder, after the job has ended."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from ddprof.capture.files.layout import RING_SUFFIX, SCHEMA, SIDECAR_SUFFIX, TRACE_SUFFIX, host_label, parse_stem
from ddprof.capture.files.ring import read_ring
from ddprof.capture.files.storage import read_json, write_json
from ddprof.capture.launcher.liveness import runs_here


def salvage(folder: Path) -> list[str]:
    """Move the step rings of dead ranks into their sidecars and delete temporary files. Returns notes."""
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
    """Whether a file's writer ran on this host and has ended. Writers on other nodes may still run."""
    fields = parse_stem(name)
    if fields is None or fields["host"] != host_label():
        return False
    return not runs_here(int(fields["pid"] or 0))


def _complete(path: Path, ring_path: Path) -> list[str]:
    """Add the ring's steps to the sidecar of a process that was killed. A ring that was read is deleted."""
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
    added = [step.record() for step in ring.steps if step.number not in known]
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
