"""One pipeline stage is slower than the others.

What it detects: forward and backward compute per step differs between stages.
Why it costs: in the steady state every stage runs at the pace of the slowest.
How the gain is priced: the run is replayed with the same total work spread evenly over the stages.
How to fix: move layers away from the slow stage; the loss layer often makes it the last one.
Limits: layers move whole, so the even split is a bound. Slow devices, whose kernels take longer than the same kernels
of other stages or replicas, are straggler.compute: their excess is taken off first.
Sources: OSDI'25 section 5.2 (last stage share >= 0.5 in 39 % of jobs).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof import averages
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.model import Pipeline
from ddprof.analyzers.rules.evidence.spans import charged_us, largest_wait
from ddprof.analyzers.rules.evidence.stages import ranks_of_stage, unknown_stages
from ddprof.analyzers.rules.straggler_compute import slow_devices
from ddprof.finding_ids import PIPELINE_IMBALANCE
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.tables import Array
from ddprof.units import format_ranks, format_share, format_us


def stage_work_us(measures: Measures, pipeline: Pipeline) -> Array:
    """Work of each stage at its peers' pace, us per step, without the excess of slow devices.

    The typical replica's where the stage has several.
    """
    slow = slow_devices(measures)
    work_us = [us / slow.get(p, 1.0) for p, us in enumerate(measures.stage_work_us.tolist())]
    return np.array([averages.typical(work_us[p] for p in stage) for stage in pipeline.stages])


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find pipeline stages with unequal work."""
    pipeline = measures.job.pipeline
    if pipeline is None:
        yield from unknown_stages(RULE.id, measures)
        return
    work = stage_work_us(measures, pipeline)
    mean = float(work.mean())
    slow = np.flatnonzero(work > (1 + execution_of(measures.job).limits.min_stage_excess) * mean)
    if mean <= 0 or not len(slow):
        return
    slowest = int(np.argmax(work))
    slow = slow[work[slow] - mean > 0.5 * (work[slowest] - mean)]
    positions = sorted(p for s in slow for p in pipeline.stages[int(s)])
    numbers = measures.ranks(positions)
    whole = tuple(sorted(r for s in slow for r in ranks_of_stage(measures, pipeline.stages[int(s)])))
    stages = f"stage {slowest}" if len(slow) == 1 else f"stages {' and '.join(map(str, slow.tolist()))}"
    verb = "has" if len(slow) == 1 else "have up to"
    yield Candidate(
        id=RULE.id,
        summary=f"pipeline {stages} ({format_ranks(whole)}) {verb} {work[slowest] / mean:.2f}x the mean stage's work",
        ranks=whole,
        lost_us=charged_us(measures, positions),
        changes=(Change("balance_stages"),),
        also=(
            (
                f"{stages} as fast as the mean of all stages",
                Change("scale_compute", numbers, tuple(float(measures.stage_work_us[p] / mean) for p in positions)),
            ),
        ),
        basis=Basis.COMPARED,
        evidence=(
            Evidence(
                "work per stage: " + ", ".join(f"{i}: {format_us(float(w))}" for i, w in enumerate(work)),
                numbers[0] if numbers else None,
            ),
            *largest_wait(measures, pipeline.stages[slowest][0]),
        ),
        fixes=(
            Fix(
                setting="layers per stage",
                suggested=f"move {format_share(1 - mean / work[slowest])} of stage {slowest}'s work to the others",
                patch="split points: fewer layers on the stage with the embedding or the loss",
                why="the slowest stage sets the pace of all",
                source="OSDI'25 section 5.2",
            ),
        ),
    )


RULE = Rule(PIPELINE_IMBALANCE, "One pipeline stage is slower", detect, bound="pipeline", compares_ranks=True)
