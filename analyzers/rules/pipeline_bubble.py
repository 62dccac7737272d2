"""The pipeline schedule's bubble is large.

What it detects: stages wait (p - 1) / (m v) of their work per step for the pipeline to fill and drain.
Why it costs: the devices of all stages idle for that time in every step.
How the gain is priced: by formula, for twice the microbatches: the bubble halves, (p - 1) / (2 m v) of the mean stage's
work. On CPU ranks the Python between operators is taken off, because every microbatch pays for it.
How to fix: more microbatches, interleaved stages, fewer stages.
Limits: more microbatches of the same size raise the batch; smaller ones lower the kernels' efficiency.
Sources: Megatron-LM section 2.2: (p - 1) / m, interleaved (p - 1) / (m v).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.examples import longest_stage_wait
from ddprof.analyzers.rules.evidence.stages import unknown_stages
from ddprof.findings import Abstention, Candidate, Evidence, Fix, Rule
from ddprof.units import format_share

MIN_SHARE = 0.05  # of the step


def _host_us(measures: Measures) -> float:
    """What twice the microbatches cost the host, us per step: nothing where it runs ahead of a device."""
    if execution_of(measures.job).runs_ahead:
        return 0.0
    return float(measures.cause_us("host_launch").mean())


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """A large unavoidable bubble."""
    pipeline = measures.job.pipeline
    if pipeline is None:
        yield from unknown_stages(RULE.id, measures)
        return
    bubble = float(measures.cause_us("pipeline_bubble").mean())
    if bubble < MIN_SHARE * measures.step_us:
        return
    stages, count = len(pipeline.stages), pipeline.microbatches
    work = float(np.mean(measures.stage_work_us))
    gain = min(bubble, work * (stages - 1) / (count * pipeline.interleave)) / 2 - _host_us(measures)
    if gain <= 0:
        return
    yield Candidate(
        id=RULE.id,
        summary=f"{format_share(bubble / measures.step_us)} of each step is the bubble of {stages} stages and "
        f"{count} microbatches",
        ranks=(),
        lost_us=bubble,
        changes=(),
        confidence=0.85,
        evidence=(
            Evidence(f"{stages} stages, {count} microbatches, {pipeline.interleave} chunk(s) per stage"),
            *longest_stage_wait(measures),
        ),
        fixes=(
            Fix(
                setting="microbatches",
                current=str(count),
                suggested=str(2 * count),
                patch=f"n_microbatches={2 * count}  # or ScheduleInterleaved1F1B with 2 chunks per stage",
                why="the bubble is (stages - 1) / (microbatches x chunks) of the work",
                source="Megatron-LM section 2.2",
            ),
        ),
        ceiling_us=gain,
        is_bound=True,
        band=0.2,
    )


RULE = Rule(
    "pipeline.bubble", "The pipeline bubble is large", detect, bound="pipeline", upper_bound=True, compares_ranks=True
)
