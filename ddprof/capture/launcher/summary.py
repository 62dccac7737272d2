"""What the ranks of a run wrote, summed up from their sidecars for the manifest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ddprof.capture.files.layout import SIDECAR_SUFFIX, parse_stem
from ddprof.capture.files.step import PHASE_NAMES
from ddprof.capture.files.storage import read_json

_WARM_STEPS = 2  # at the start of a run: lazy initialisation, DDP's first bucket order
_PHASES = tuple(f"{name}_ns" for name in PHASE_NAMES)


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
    """Medians over the unprofiled steps, without the warm-up and the last one (it may be cut short); {} without any.

    Nothing else is known of a rank that opens no window. `rest_ns` is the median of a step's time outside phases: on a
    busy machine the medians of steps and of phases come from different steps, and their difference is no step's time.
    """
    unprofiled = [step for step in steps[_WARM_STEPS:-1] if not step.get("profiled")]
    if not unprofiled:
        return {}
    lengths = [step["end_ns"] - step["start_ns"] for step in unprofiled]
    medians = {name: int(median(step.get(name) or 0 for step in unprofiled)) for name in _PHASES}
    known = [sum(step.get(name) or 0 for name in _PHASES) for step in unprofiled]
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
