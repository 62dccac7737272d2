"""The job's steps without the profiler, from the step timers that capture keeps outside trace windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.job.model import JobFacts
from ddprof.averages import middle_half

MIN_STEPS = 8
BLOCK_STEPS = 4  # a pause every other step, or in turn on two ranks, counts for what it is
WORTH_SHARE = 0.02  # of the step: pauses that are shorter may as well be none
MOST_CHANGE = 4.0

Record = dict[str, Any]
Average = Callable[[Sequence[int]], Any]
Part = Callable[[Record], int | None]  # ns of a step; None where it does not say


def untraced_step_us(job: JobFacts) -> float | None:
    """Typical step outside the windows: over ranks the median of each rank's mean over its typical steps.

    None where a rank has fewer than MIN_STEPS.
    """
    found = [_average_ns(typical_steps(facts), _length_ns) for facts in job.ranks]
    known = [ns for ns in found if ns is not None]
    return median(known) / 1e3 if known and len(known) == len(found) else None


def untraced_steps(facts: RankFacts) -> list[Record]:
    """Records of the steps of a rank in which nothing was traced or written, with start and end.

    Steps before the first window are left out (the job warms up), and the one after each (the trace is written).
    """
    steps = _records(facts, "steps")
    first = next((i for i, step in enumerate(steps) if step.get("profiled")), len(steps))
    pairs = zip(steps[first:], steps[first + 1 :], strict=False)
    bare = [step for before, step in pairs if not step.get("profiled") and not before.get("profiled")]
    return [step for step in bare if _length_ns(step) is not None]


def typical_steps(facts: RankFacts) -> list[Record]:
    """Those of them in blocks that are neither among the shortest quarter of blocks nor the longest.

    Whatever a step consists of is averaged over the same steps, so that the parts sum. Empty below MIN_STEPS.
    """
    steps = untraced_steps(facts)
    if len(steps) < MIN_STEPS:
        return []
    whole = steps[: len(steps) // BLOCK_STEPS * BLOCK_STEPS]
    lengths = np.array([_length_ns(step) for step in whole], float).reshape(-1, BLOCK_STEPS).sum(axis=1)
    blocks = np.sort(middle_half(lengths))
    return [whole[block * BLOCK_STEPS + i] for block in blocks.tolist() for i in range(BLOCK_STEPS)]


def untraced_pauses(facts: RankFacts) -> dict[str, float]:
    """How long loading ("dataloader"), garbage collection and saving take per step outside the windows, over inside.

    Causes that take next to nothing inside are left out, and all of them where too few steps are known.
    """
    parts: dict[str, Part] = {"dataloader": _told("data_ns")}
    for cause, key in (("gc", "gc"), ("checkpoint", "checkpoints")):
        if pauses := _records(facts, key):
            parts[cause] = _pauses_in(pauses)
    found = _inside_and_outside(facts, parts)
    return {cause: min(after / before, MOST_CHANGE) for cause, (before, after) in found.items()}


def timed_phases(facts: RankFacts) -> dict[Phase, tuple[float, float]]:
    """Time of each phase per step, ns, inside the windows and outside: medians, for a phase holds waits now and then.

    Those that take next to nothing are left out, and all of them where too few steps are known.
    """
    keys = {phase: f"{phase.name.lower()}_ns" for phase in Phase}
    found = _inside_and_outside(facts, {key: _told(key) for key in keys.values()}, np.median)
    return {phase: found[key] for phase, key in keys.items() if key in found}


def untraced_pace(ranks: Sequence[RankFacts]) -> float | None:
    """Time of a step beside loading outside the windows, over inside: of the rank where it is least (it holds waits).

    None where no rank's steps were timed both inside and outside.
    """
    found = [
        times["beside"] for facts in ranks if "beside" in (times := _inside_and_outside(facts, {"beside": _beside_ns}))
    ]
    return min(outside for _, outside in found) / min(inside for inside, _ in found) if found else None


def _inside_and_outside(
    facts: RankFacts, parts: Mapping[str, Part], average: Average = np.mean
) -> dict[str, tuple[float, float]]:
    """Average of each part of a step, ns, over the steps of the windows and over the typical ones outside."""
    inside = [step for step in _records(facts, "steps") if step.get("profiled") and _length_ns(step) is not None]
    outside = typical_steps(facts)
    step_ns = _average_ns(inside, _length_ns)
    found = {}
    for name, part in parts.items():
        within, beyond = _average_ns(inside, part, average), _average_ns(outside, part, average)
        if within is not None and beyond is not None and within > WORTH_SHARE * (step_ns or 0.0):
            found[name] = (within, beyond)
    return found


def _average_ns(steps: Sequence[Record], part: Part, average: Average = np.mean) -> float | None:
    """Average of a part over the steps that know it; None where none does."""
    known = [ns for step in steps if (ns := part(step)) is not None]
    return float(average(known)) if known else None


def _told(key: str) -> Part:
    return lambda step: value if isinstance(value := step.get(key), int) else None


def _pauses_in(pauses: Sequence[Record]) -> Part:
    """Time in pauses that begin inside a step."""
    begun = np.array([pause["start_ns"] for pause in pauses if pause.get("dur_ns")], np.int64)
    taken = np.array([pause["dur_ns"] for pause in pauses if pause.get("dur_ns")], np.int64)
    return lambda step: int(taken[(begun >= step["start_ns"]) & (begun < step["end_ns"])].sum())


def _beside_ns(step: Record) -> int | None:
    length, loading = _length_ns(step), step.get("data_ns")
    return length - loading if length is not None and isinstance(loading, int) and loading < length else None


def _records(facts: RankFacts, key: str) -> list[Record]:
    return [record for record in facts.sidecar.get(key) or () if isinstance(record, dict)]


def _length_ns(step: Record) -> int | None:
    start, end = step.get("start_ns"), step.get("end_ns")
    return end - start if isinstance(start, int) and isinstance(end, int) and end > start else None
