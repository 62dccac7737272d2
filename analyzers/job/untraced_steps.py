"""The job's steps without the profiler, from the step timers that capture keeps outside trace windows."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.model import JobFacts

MIN_STEPS = 8
BLOCK_STEPS = 4  # a pause every other step, or in turn on two ranks, counts for what it is
WORTH_SHARE = 0.02  # of the step: pauses that are shorter may as well be none
MOST_CHANGE = 4.0

Record = dict[str, Any]


def untraced_step_us(job: JobFacts) -> float | None:
    """Typical step outside the windows: over ranks the median, over its steps the median of block means.

    Steps before the first window are left out (the job warms up), and the one after each (the trace is written). None
    where a rank has fewer than MIN_STEPS.
    """
    found = [_typical_ns([_length_ns(step) for step in untraced_steps(facts)]) for facts in job.ranks]
    known = [ns for ns in found if ns is not None]
    return median(known) / 1e3 if known and len(known) == len(found) else None


def untraced_steps(facts: RankFacts) -> list[Record]:
    """Records of the steps of a rank after its first window in which nothing was traced or written."""
    steps = _records(facts, "steps")
    first = next((i for i, step in enumerate(steps) if step.get("profiled")), len(steps))
    pairs = zip(steps[first:], steps[first + 1 :], strict=False)
    return [step for before, step in pairs if not step.get("profiled") and not before.get("profiled")]


def untraced_pauses(facts: RankFacts) -> dict[str, float]:
    """How long loading ("dataloader"), garbage collection and saving take per step outside the windows, over inside.

    Causes that take next to nothing inside are left out, and all of them where too few steps are known.
    """
    inside = [step for step in _records(facts, "steps") if step.get("profiled") and _length_ns(step) is not None]
    outside = [step for step in untraced_steps(facts) if _length_ns(step) is not None]
    if len(outside) < MIN_STEPS or not inside:
        return {}
    loading = [_typical_ns([step.get("data_ns") for step in steps], 1) for steps in (inside, outside)]
    times = {"dataloader": loading}
    for cause, key in (("gc", "gc"), ("checkpoint", "checkpoints")):
        times[cause] = [_pauses_ns(_records(facts, key), steps) for steps in (inside, outside)]
    step_ns = _typical_ns([_length_ns(step) for step in inside], 1) or 0.0
    return {
        cause: min(after / before, MOST_CHANGE)
        for cause, (before, after) in times.items()
        if before is not None and after is not None and before > WORTH_SHARE * step_ns
    }


def untraced_pace(ranks: Sequence[RankFacts]) -> float | None:
    """Time of a step beside loading outside the windows, over inside: of the rank where it is least (it holds waits).

    None where no rank's steps were timed both inside and outside.
    """
    found = []
    for facts in ranks:
        inside = [step for step in _records(facts, "steps") if step.get("profiled")]
        beside = [_typical_ns([_beside_ns(step) for step in steps], 1) for steps in (inside, untraced_steps(facts))]
        if beside[0] and beside[1]:
            found.append((beside[0], beside[1]))
    return min(outside for _, outside in found) / min(inside for inside, _ in found) if found else None


def _beside_ns(step: Record) -> int | None:
    length, loading = _length_ns(step), step.get("data_ns")
    return length - loading if length is not None and isinstance(loading, int) and loading < length else None


def _pauses_ns(pauses: Sequence[Record], steps: Sequence[Record]) -> float | None:
    """Time in pauses that begin inside a step, of the typical one."""
    begun = np.array([pause["start_ns"] for pause in pauses if pause.get("dur_ns")], np.int64)
    taken = np.array([pause["dur_ns"] for pause in pauses if pause.get("dur_ns")], np.int64)
    return _typical_ns([int(taken[(begun >= s["start_ns"]) & (begun < s["end_ns"])].sum()) for s in steps], 1)


def _typical_ns(lengths_ns: Sequence[int | None], least: int = MIN_STEPS) -> float | None:
    usable = np.array([ns for ns in lengths_ns if ns is not None], float)
    if len(usable) < max(least, 1):
        return None
    blocks = len(usable) // BLOCK_STEPS
    if not blocks:
        return float(np.median(usable))
    return float(np.median(usable[: blocks * BLOCK_STEPS].reshape(blocks, BLOCK_STEPS).mean(axis=1)))


def _records(facts: RankFacts, key: str) -> list[Record]:
    return [record for record in facts.sidecar.get(key) or () if isinstance(record, dict)]


def _length_ns(step: Record) -> int | None:
    start, end = step.get("start_ns"), step.get("end_ns")
    return end - start if isinstance(start, int) and isinstance(end, int) and end > start else None
