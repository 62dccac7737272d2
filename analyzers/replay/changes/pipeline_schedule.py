"""The step with other microbatches or chunks per pipeline stage: a smaller or larger bubble.

The bubble is (stages - 1) / (microbatches x chunks) of a stage's work, a third of that where the schedule splits the
backward pass (analyzers/job/pipelines/bubble.py). Halving microbatches
halves neither the gaps between their kernels nor the latency of their messages: each further one costs what one
costs now.
"""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.pipelines.bubble import bubble_share
from ddprof.findings import Change


def pipeline_schedule(change: Change, step_us: float, measures: Measures) -> float:
    """`values`: microbatches and chunks per stage to have; the batch as a whole stays, so the work of a step does."""
    microbatches, chunks = change.values
    return step_us - schedule_gain_us(measures, microbatches, chunks)


def schedule_gain_us(measures: Measures, microbatches: float, chunks: float) -> float:
    """Gain of another schedule per step, us; negative for a loss, 0 without a pipeline."""
    pipeline = measures.job.pipeline
    if pipeline is None:
        return 0.0
    work_us = float(np.mean(measures.stage_work_us))
    now = bubble_share(pipeline, pipeline.microbatches, pipeline.interleave)
    saved = now - bubble_share(pipeline, microbatches, chunks)
    more = microbatches - pipeline.microbatches
    passes = microbatches * chunks - pipeline.microbatches * pipeline.interleave
    cost = more * launching_us(measures) + passes * message_us(measures)
    return work_us * saved - cost


def launching_us(measures: Measures) -> float:
    """Idle time between the operations of one microbatch: the cost of its launches, whatever its size; us."""
    pipeline = measures.job.pipeline
    return float(measures.cause_us("host_launch").mean()) / pipeline.microbatches if pipeline else 0.0


def message_us(measures: Measures) -> float:
    """Exposed time of the messages of one microbatch and chunk, us; an upper bound, as smaller messages are faster."""
    pipeline = measures.job.pipeline
    if pipeline is None:
        return 0.0
    exposed_us = sum(traffic.exposed_us for traffic in measures.comm.traffic if traffic.role == "pp")
    return exposed_us / (pipeline.microbatches * pipeline.interleave)
