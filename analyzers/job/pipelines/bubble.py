"""The wait that the schedule of a pipeline makes unavoidable.

The bubble of GPipe, 1F1B and forward passes alone is (p - 1) slots of what one microbatch takes a stage, (p - 1) / m of
the ideal compute time; interleaving v chunks divides it by v (Megatron-LM section 2.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import stage_work
from ddprof.analyzers.job.model import Pipeline
from ddprof.tables import Array


def stage_work_ns(facts: RankFacts) -> float:
    """Forward and backward compute per step, ns; 0 without steps."""
    if not len(facts.steps):
        return 0.0
    inside = intervals.overlap(stage_work(facts), facts.steps["start_ns"], facts.steps["end_ns"])
    return float(inside.sum()) / len(facts.steps)


def bubble_allowance(ranks: Sequence[RankFacts], pipeline: Pipeline | None) -> Array:
    """Unavoidable wait per step and rank, ns, shape (ranks,): (p - 1) / (m v) of the mean stage's work."""
    allowance = np.zeros(len(ranks), np.int64)
    if pipeline is None:
        return allowance
    for chain in zip(*pipeline.stages, strict=True):
        mean = float(np.mean([stage_work_ns(ranks[p]) for p in chain]))
        share = (len(chain) - 1) / (pipeline.microbatches * pipeline.interleave)
        for p in chain:
            allowance[p] = round(mean * share)
    return allowance
