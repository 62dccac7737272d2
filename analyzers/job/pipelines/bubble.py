"""The wait that a pipeline's schedule makes unavoidable.

The bubble of GPipe, 1F1B and forward passes alone is (p - 1) slots of what one microbatch takes a stage, (p - 1) / m of
the ideal compute time; interleaving v chunks divides it by v (Megatron-LM section 2.2). Schedules that split the
backward pass fill two of its three slots (forward, gradients of inputs, gradients of weights) with gradients of weights
(Zero Bubble Pipeline Parallelism, section 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import stage_work
from ddprof.analyzers.job.model import Pipeline
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
}
_UNNAMED = NamedSchedule("", 1.0)


def schedule_of(pipeline: Pipeline) -> NamedSchedule:
    """The schedule that the recording names; words "" where it names none that is known."""
    return SCHEDULES.get(pipeline.schedule, _UNNAMED)


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
