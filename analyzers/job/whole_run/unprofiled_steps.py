"""The job's steps without the profiler, from the step timers that capture keeps of every step.

"Inside" are the profiled steps of the trace windows, "outside" the unprofiled ones. A ratio is time outside over time
inside: 1 / slowdown by the profiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from statistics import median
from typing import Any

import numpy as np

from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.work import computes
from ddprof.analyzers.job.model import JobFacts
from ddprof.averages import middle_half
from ddprof.model import HealthNote
from ddprof.sidecar import Pause, StepTimes
from ddprof.significance import trend
from ddprof.units import format_us

MIN_STEPS = 8  # unprofiled steps of a rank, before their mean says anything
# Steps per block of the trimmed mean: a pause every other step, or in turn on two ranks, is in every block alike.
# Single steps would be trimmed of their pauses.
BLOCK_STEPS = 4
# Batch means: 10 to 30 batches suffice, however long the run is (Schmeiser 1982); fewer where it is short.
PARTS, LEAST_PARTS, LEAST_PER_PART = 10, 4, 3
GROWN = 1.2  # the last step over the first: less moves what is said of the typical step by a tenth at most
GROWTH_CHANCE = 0.001  # of a line that steep through parts of steps that do not grow
MIN_PART_SHARE = 0.02  # of the profiled step: a part that takes less of it inside has no ratio
MAX_PAUSE_RATIO = 4.0  # outside over inside: a window of few steps may hold next to no pause

Average = Callable[[Sequence[int]], Any]
Part = Callable[[StepTimes], int | None]  # ns that a part takes of a step; None where its timers do not say


def unprofiled_step_us(ranks: Sequence[RankFacts]) -> float | None:
    """The typical unprofiled step: the median over ranks of each rank's mean over its typical steps.

    None where a rank has fewer than MIN_STEPS unprofiled steps.
    """
    means = [average_ns(typical_steps(facts), attrgetter("length_ns")) for facts in ranks]
    timed = [ns for ns in means if ns is not None]
    return median(timed) / 1e3 if timed and len(timed) == len(means) else None


def timed_step_ns(ranks: Sequence[RankFacts]) -> float | None:
    """The mean unprofiled step, whatever it holds, mean over ranks; None where a rank has fewer than MIN_STEPS."""
    lengths = [[step.length_ns or 0 for step in unprofiled_steps(facts)] for facts in ranks]
    is_timed = min(map(len, lengths), default=0) >= MIN_STEPS
    return float(np.mean([np.mean(each) for each in lengths])) if is_timed else None


def unprofiled_steps(facts: RankFacts) -> list[StepTimes]:
    """Timer records of a rank's steps in which nothing was traced or written, those with a start and an end.

    Left out are the steps before the first window (the job warms up) and the one after each window (the trace is
    written).
    """
    steps = facts.sidecar.steps
    first = next((i for i, step in enumerate(steps) if step.profiled), len(steps))
    pairs = zip(steps[first:], steps[first + 1 :], strict=False)
    outside = [step for before, step in pairs if not step.profiled and not before.profiled]
    return [step for step in outside if step.length_ns is not None]


def longer_outside_us(ranks: Sequence[RankFacts], step_us: float) -> float | None:
    """The typical unprofiled step of devices where it is clearly longer than the profiled one, which the profiler does
    not shorten: something makes it longer that no window holds. None elsewhere."""
    outside_us = None if any(map(computes, ranks)) else unprofiled_step_us(ranks)
    return outside_us if outside_us is not None and 0 < GROWN * step_us < outside_us else None


def longer_outside_note(ranks: Sequence[RankFacts], step_ns: int) -> list[HealthNote]:
    """A note where steps of devices are clearly longer outside the trace."""
    outside_us = longer_outside_us(ranks, step_ns / 1e3)
    if outside_us is None:
        return []
    issue = f"steps outside the trace take {format_us(outside_us)}, traced ones {format_us(step_ns / 1e3)}"
    return [
        HealthNote(issue, "what makes them longer is not in it: trace a later window (--skip) or several (--every)")
    ]


def common_steps(ranks: Sequence[RankFacts]) -> list[list[StepTimes]]:
    """The unprofiled steps that all ranks have, rank by rank, in one order; empty lists where there are none."""
    timed = [{step.index: step for step in unprofiled_steps(facts) if step.index is not None} for facts in ranks]
    numbers = sorted(set.intersection(*(set(by_number) for by_number in timed))) if timed else []
    return [[by_number[number] for number in numbers] for by_number in timed]


def typical_steps(facts: RankFacts) -> list[StepTimes]:
    """The unprofiled steps of a rank without the shortest and the longest quarter of blocks of BLOCK_STEPS.

    All parts of a step are averaged over these same steps, so that the averages sum to that of the step. Empty below
    MIN_STEPS.
    """
    steps = unprofiled_steps(facts)
    if len(steps) < MIN_STEPS:
        return []
    whole = steps[: len(steps) // BLOCK_STEPS * BLOCK_STEPS]
    lengths = np.array([step.length_ns for step in whole], float).reshape(-1, BLOCK_STEPS).sum(axis=1)
    blocks = np.sort(middle_half(lengths))
    return [whole[block * BLOCK_STEPS + i] for block in blocks.tolist() for i in range(BLOCK_STEPS)]


def timed_parts_us(ranks: Sequence[RankFacts]) -> tuple[tuple[float, ...], int]:
    """Mean unprofiled step in each of equal parts of the run, in order and pauses included, and the number of steps; ()
    where a rank has too few.
    """
    lengths = [[step.length_ns for step in unprofiled_steps(facts) if step.length_ns] for facts in ranks]
    steps = min(map(len, lengths), default=0)
    parts = min(PARTS, steps // LEAST_PER_PART)
    if parts < LEAST_PARTS:
        return (), 0
    each = steps // parts
    kept = np.array([of_rank[-parts * each :] for of_rank in lengths], float)
    means = kept.mean(axis=0).reshape(parts, each).mean(axis=1) / 1e3
    return tuple(means.tolist()), parts * each


def growth_note(ranks: Sequence[RankFacts]) -> list[HealthNote]:
    """A note where steps get clearly longer from the begin of the run to its end, of which the trace is a part."""
    parts_us, steps = timed_parts_us(ranks)
    line = trend(parts_us, GROWTH_CHANCE) if parts_us else None
    if line is None or line[1] < GROWN * line[0] or line[0] <= 0:
        return []
    issue = f"steps get longer over the run: from {format_us(line[0])} to {format_us(line[1])} in {steps} steps"
    return [HealthNote(issue, "the traced steps stand for a part of it; look for what grows (a list, a cache, memory)")]


def pause_ratios(facts: RankFacts) -> dict[str, float]:
    """Ratio of the time per step in loading ("dataloader"), garbage collection ("gc") and saving ("checkpoint").

    A cause that takes next to nothing inside has none, nor has any cause where too few steps are known.
    """
    times = _inside_and_outside(facts, _scaled_pauses(facts))
    return {cause: min(outside / inside, MAX_PAUSE_RATIO) for cause, (inside, outside) in times.items()}


def apart_us(job: JobFacts) -> float:
    """Time per typical unprofiled step in pauses that the profiled steps lack, us, on the rank with most: saves every
    eighth step, or a loader whose queue was full when the recording began. What a ratio scales is not among it.
    """
    return max((_apart_ns(facts) for facts in job.ranks), default=0.0) / 1e3


def _apart_ns(facts: RankFacts) -> float:
    parts, scaled = {**_scaled_pauses(facts), "evaluation": pauses_in(facts.sidecar.evaluations)}, pause_ratios(facts)
    times = _inside_and_outside(facts, parts, least_share=-1.0)
    return sum(max(0.0, outside - scaled.get(cause, 1.0) * inside) for cause, (inside, outside) in times.items())


def _scaled_pauses(facts: RankFacts) -> dict[str, Part]:
    """The pauses that the replay scales, by cause."""
    sidecar = facts.sidecar
    recorded = {"gc": sidecar.gc, "checkpoint": sidecar.checkpoints}
    return {"dataloader": attrgetter("data_ns"), **{cause: pauses_in(each) for cause, each in recorded.items() if each}}


def timed_phases(facts: RankFacts) -> dict[Phase, tuple[float, float]]:
    """Median time (ns) of each phase per step, inside and outside the windows. Medians resist the occasional wait.

    A phase that takes next to nothing inside is left out, and every phase where too few steps are known.
    """
    keys = {phase: f"{phase.name.lower()}_ns" for phase in Phase}
    times = _inside_and_outside(facts, {key: attrgetter(key) for key in keys.values()}, np.median)
    return {phase: times[key] for phase, key in keys.items() if key in times}


def unprofiled_ratio(ranks: Sequence[RankFacts]) -> float | None:
    """Ratio of the step time without loading, on the rank with the least of it: the others' includes waiting for it.

    None where no rank's steps were timed both inside and outside.
    """
    timed = [_inside_and_outside(facts, {"rest": _without_loading_ns}).get("rest") for facts in ranks]
    rests = [times for times in timed if times is not None]
    return min(outside for _, outside in rests) / min(inside for inside, _ in rests) if rests else None


def _inside_and_outside(
    facts: RankFacts, parts: Mapping[str, Part], average: Average = np.mean, least_share: float = MIN_PART_SHARE
) -> dict[str, tuple[float, float]]:
    """Mean (ns) of each part over the profiled steps, where it takes more of them than `least_share`, and over the
    typical unprofiled ones.
    """
    inside = [step for step in facts.sidecar.steps if step.profiled and step.length_ns is not None]
    outside = typical_steps(facts)
    step_ns = average_ns(inside, attrgetter("length_ns"))
    times = {}
    for name, part in parts.items():
        inside_ns, outside_ns = average_ns(inside, part, average), average_ns(outside, part, average)
        if inside_ns is not None and outside_ns is not None and inside_ns > least_share * (step_ns or 0.0):
            times[name] = (inside_ns, outside_ns)
    return times


def average_ns(steps: Sequence[StepTimes], part: Part, average: Average = np.mean) -> float | None:
    """Mean of a part over the steps whose timers have it; None without any."""
    times = [ns for step in steps if (ns := part(step)) is not None]
    return float(average(times)) if times else None


def pauses_in(pauses: Sequence[Pause]) -> Part:
    """Time of the pauses that begin inside a step."""
    in_order = sorted(pauses, key=lambda pause: pause.start_ns)
    begun = np.array([pause.start_ns for pause in in_order], np.int64)
    taken = np.append(0, np.cumsum([pause.dur_ns for pause in in_order], dtype=np.int64))

    def inside(step: StepTimes) -> int | None:
        if step.span_ns is None:
            return None
        first, end = np.searchsorted(begun, step.span_ns)
        return int(taken[end] - taken[first])

    return inside


def _without_loading_ns(step: StepTimes) -> int | None:
    length, loading = step.length_ns, step.data_ns
    return length - loading if length is not None and loading is not None and loading < length else None
