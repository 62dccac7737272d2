"""The wait that a pipeline's schedule makes unavoidable.

The bubble of GPipe, 1F1B and forward passes alone is (p - 1) slots of what one microbatch takes a stage, (p - 1) / m of
the ideal compute time; interleaving v chunks divides it by v (Megatron-LM section 2.2). Schedules that split the
backward pass fill two of its three slots (forward, gradients of inputs, gradients of weights) with gradients of weights
(Zero Bubble Pipeline Parallelism, section 2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from ddprof import averages, intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import is_gemm
from ddprof.analyzers.facts.work import stage_work
from ddprof.analyzers.job.model import Pipeline
from ddprof.analyzers.job.peers.kernels import kernels_by_place
from ddprof.analyzers.job.slowdown import Slowdown, unknown_slowdown
from ddprof.tables import Array


class NamedSchedule(NamedTuple):
    """A schedule's name, its bubble over 1F1B's with as many chunks, and whether each rank must hold two chunks."""

    words: str
    bubble: float
    is_v: bool = False


# Classes of torch.distributed.pipelining, functions of Megatron-core. The bubbles of the classes are those of playing
# torch 2.13's tables of actions with slots of one length: 2 and 4 ranks, 8 and 16 microbatches, exact in all cases
# (24 November 2026).
SCHEDULES = {
    "ScheduleGPipe": NamedSchedule("GPipe", 1.0),
    "Schedule1F1B": NamedSchedule("1F1B", 1.0),
    "ScheduleLoopedBFS": NamedSchedule("looped breadth-first", 1.0),
    "ScheduleInterleaved1F1B": NamedSchedule("interleaved 1F1B", 1.0),
    "ScheduleInterleavedZeroBubble": NamedSchedule("interleaved zero-bubble", 1 / 3),
    "ScheduleZBVZeroBubble": NamedSchedule("zero-bubble V", 1 / 3, is_v=True),
    "ScheduleDualPipeV": NamedSchedule("DualPipeV", 1 / 3, is_v=True),
    "forward_backward_pipelining_without_interleaving": NamedSchedule("1F1B of Megatron-core", 1.0),
    "forward_backward_pipelining_with_interleaving": NamedSchedule("interleaved 1F1B of Megatron-core", 1.0),
    "zero bubble": NamedSchedule("zero-bubble (backward passes in two parts)", 1 / 3),  # by its order
}
_UNNAMED = NamedSchedule("", 1.0)


def schedule_of(pipeline: Pipeline) -> NamedSchedule:
    """The schedule that the recording names, or shows; words "" where it is none that is known."""
    return SCHEDULES.get(pipeline.schedule, _UNNAMED)


def schedule_by_order(orders: Sequence[Array], microbatches: int, chunks: int) -> str:
    """A key of SCHEDULES by the order of passes in a step, forward (True) or backward, of each rank; "" for others.

    GPipe runs all forward passes first. 1F1B runs, once a backward pass has come, never two forward passes on end;
    with one microbatch both are alike. Schedules that split backward passes have more of these than forward passes.
    """
    rounds = microbatches * chunks
    forwards = [int(order.sum()) for order in orders]
    if microbatches < 2 or set(forwards) != {rounds}:
        return ""
    backwards = [len(order) - rounds for order in orders]
    if min(backwards) > rounds:
        return "zero bubble"
    if set(backwards) != {rounds}:
        return ""
    if all(order[:rounds].all() for order in orders):
        return "ScheduleGPipe" if chunks == 1 else "ScheduleLoopedBFS"
    after = [order[order.argmin() :] for order in orders]
    if any((order[1:] & order[:-1]).any() for order in after):
        return ""
    return "Schedule1F1B" if chunks == 1 else "ScheduleInterleaved1F1B"


def bubble_share(pipeline: Pipeline, microbatches: float, chunks: float) -> float:
    """Unavoidable wait over the mean stage's work, for these microbatches and chunks per stage."""
    return schedule_of(pipeline).bubble * (len(pipeline.stages) - 1) / (microbatches * chunks)


def stage_work_ns(facts: RankFacts) -> float:
    """Forward and backward compute per step, ns."""
    return float(intervals.overlap(stage_work(facts), *facts.steps.bounds).sum()) / len(facts.steps)


def bubble_allowance(ranks: Sequence[RankFacts], pipeline: Pipeline | None) -> Array:
    """Unavoidable wait per step and rank, ns, shape (ranks,): the schedule's share of the mean stage's work."""
    allowance = np.zeros(len(ranks), np.int64)
    if pipeline is None:
        return allowance
    share = bubble_share(pipeline, pipeline.microbatches, pipeline.interleave)
    for chain in zip(*pipeline.stages, strict=True):
        mean = float(np.mean([stage_work_ns(ranks[p]) for p in chain]))
        for p in chain:
            allowance[p] = round(mean * share)
    return allowance


# Pace of each pipeline rank against other stages, by kernels that most stages run.
#
# A stage with more layers launches more kernels; a slow device takes longer for each. Kernels of one name may do other
# work on another stage (an output layer, a network that narrows): a slow device shows in all quartiles of nearly all
# kernels, other work does not. Wider layers slow matrix products, by the square of the width, more than the rest: where
# shapes are unknown both must be equally slow.

QUARTILES = (0.25, 0.5, 0.75)
MIN_LAUNCHES = 4  # of a kernel on a rank, for quartiles
# Devices that idle more boost higher, and their neighbours differ: stages are not as alike as replicas of one stage.
MIN_EXCESS = 0.05
# Of the rank's excess: how far a kernel's ratio may lie from the typical one, and be slow for the same reason.
ALIKE = 0.25
ALIKE_SHARE = 0.75  # of the time compared: so much must be slow for the same reason
LEAST_KIND = 0.05  # of the time compared: matrix products, or all others, that speak for themselves
SCATTER = 0.02  # of a ratio between equal kernels on equal devices


class _Kernels(Struct, frozen=True):
    """One rank's kernels that ran alone, by name and shapes: rows of `quartiles_ns`, `steps_ns`, `total_ns`."""

    keys: tuple[tuple[str, str], ...]
    quartiles_ns: Array  # (kernels, 3)
    steps_ns: Array  # (kernels, steps), median; NaN in steps without
    total_ns: Array  # (kernels,)
    compute_ns: float


def stage_pace(ranks: Sequence[RankFacts], pipeline: Pipeline | None) -> Slowdown:
    """Time of each rank's kernels over the typical rank's of all stages; NaN where it singles out no device.

    Factors below 1 + MIN_EXCESS are 1.
    """
    steps = min(len(f.steps) for f in ranks)
    staged = [p for stage in pipeline.stages for p in stage] if pipeline is not None else []
    pace = unknown_slowdown(len(ranks), steps)
    if pipeline is None or any(not len(ranks[p].device_ops) for p in staged):
        return pace
    kernels = {p: _kernels(ranks[p], steps) for p in staged}
    reference = _references(kernels, pipeline)
    for p in staged:
        _compare(p, kernels[p], reference, pace)
    return pace


def _compare(position: int, kernels: _Kernels, reference: dict[tuple[str, str], Array], pace: Slowdown) -> None:
    """Fill in the pace of one rank."""
    rows = [i for i, key in enumerate(kernels.keys) if key in reference]
    if not rows:
        return
    keys = [kernels.keys[i] for i in rows]
    usual = np.array([reference[key] for key in keys])
    ratio, weight = kernels.quartiles_ns[rows] / usual, kernels.total_ns[rows]
    factor = averages.weighted_median(ratio.ravel(), np.repeat(weight, len(QUARTILES)))
    shaped = np.array([bool(shapes) for _, shapes in keys])
    pace.time_us[position] = weight.sum() / pace.per_step.shape[1] / 1e3
    pace.coverage[position] = weight.sum() / max(1.0, kernels.compute_ns)
    if factor < 1 + MIN_EXCESS:
        pace.factor[position], pace.per_step[position] = 1.0, 1.0
    elif _is_of_the_device(ratio, weight, shaped, factor) and _in_both_kinds(keys, ratio, weight, factor):
        pace.factor[position] = factor
        for step, took in enumerate(kernels.steps_ns[rows].T):
            has_run = np.isfinite(took)
            if has_run.any():
                middle = took[has_run] / usual[has_run, 1]
                pace.per_step[position, step] = averages.weighted_median(middle, weight[has_run])


def _is_of_the_device(ratio: Array, weight: Array, shaped: Array, factor: float) -> bool:
    """True where kernels are equally slow. Kernels of known shapes may be as fast as elsewhere in all launches, since a
    device short of power slows only those that load its multipliers; one that is fast in some launches does other work
    in the rest.
    """
    reach = max(SCATTER, ALIKE * (factor - 1))
    alike = np.abs(ratio - factor) <= reach
    alike |= (shaped & (np.abs(ratio - 1) <= reach).all(axis=1))[:, None]
    return bool((alike * weight[:, None]).sum() >= ALIKE_SHARE * len(QUARTILES) * weight.sum())


def _in_both_kinds(keys: list[tuple[str, str]], ratio: Array, weight: Array, factor: float) -> bool:
    """True where, without shapes, matrix products and other kernels are equally slow."""
    products = is_gemm([name for name, _ in keys])
    unknown = np.array([not shapes for _, shapes in keys])
    least = LEAST_KIND * weight.sum()
    if weight[unknown & products].sum() < least or weight[~products].sum() < least:
        return True
    others = averages.weighted_median(ratio[~products].ravel(), np.repeat(weight[~products], len(QUARTILES)))
    return abs(others - factor) <= max(SCATTER, ALIKE * (factor - 1))


def _references(kernels: dict[int, _Kernels], pipeline: Pipeline) -> dict[tuple[str, str], Array]:
    """Kernel quartiles of the typical rank, for kernels that most stages run."""
    durations: dict[tuple[str, str], list[Array]] = defaultdict(list)
    stages: dict[tuple[str, str], set[int]] = defaultdict(set)
    for number, stage in enumerate(pipeline.stages):
        for p in stage:
            for key, quartiles in zip(kernels[p].keys, kernels[p].quartiles_ns, strict=True):
                durations[key].append(quartiles)
                stages[key].add(number)
    most = max(1, len(pipeline.stages) // 2)
    return {key: averages.typical_row(np.array(rows)) for key, rows in durations.items() if len(stages[key]) > most}


def _kernels(facts: RankFacts, steps: int) -> _Kernels:
    run = kernels_by_place(facts, steps)
    alone = run.is_either & ~run.is_beside
    kernel, step, dur = run.name[alone], run.step[alone], run.dur_ns[alone]
    launches = np.bincount(kernel, minlength=len(run.names))
    kept = np.flatnonzero(launches >= MIN_LAUNCHES)
    order = np.lexsort((dur, kernel))
    first = np.cumsum(launches) - launches
    at = first[kept, None] + np.floor(np.array(QUARTILES) * (launches[kept, None] - 1)).astype(np.int64)
    by_step = np.full((len(kept), steps), np.nan)
    middle = _medians(kernel * steps + step, dur)
    for row, one in enumerate(kept.tolist()):
        by_step[row] = [middle.get(one * steps + number, np.nan) for number in range(steps)]
    return _Kernels(
        tuple(run.names[one] for one in kept.tolist()),
        np.maximum(dur[order][at], 1),
        by_step,
        np.bincount(kernel, weights=dur, minlength=len(run.names))[kept],
        float(run.dur_ns.sum()),
    )


def _medians(key: Array, dur: Array) -> dict[int, float]:
    """Lower median duration per key."""
    order = np.lexsort((dur, key))
    keys, first, counts = np.unique(key[order], return_index=True, return_counts=True)
    return dict(zip(keys.tolist(), dur[order][first + (counts - 1) // 2].tolist(), strict=True))
