"""The step with other microbatches or chunks per pipeline stage: a smaller or larger bubble."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Change


def pipeline_schedule(change: Change, step_us: float, measures: Measures) -> float:
    """`values`: microbatches and chunks per stage to have; the batch as a whole stays, so the work of a step does.

    The bubble is (stages - 1) / (microbatches x chunks) of a stage's work (Megatron-LM section 2.2).
    """
    pipeline = measures.job.pipeline
    if pipeline is None:
        return step_us
    microbatches, chunks = change.values
    work_us = float(np.mean(measures.stage_work_us))
    slots = 1.0 / (microbatches * chunks) - 1.0 / (pipeline.microbatches * pipeline.interleave)
    return step_us + work_us * (len(pipeline.stages) - 1) * slots
