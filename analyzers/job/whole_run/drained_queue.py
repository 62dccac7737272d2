"""Loaders whose queue was full as the recording began: their workers are too slow, which shows only after it.

A queue of N batches hides a slow loader for some N steps, as after a warm-up or an evaluation that took no batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ddprof import averages
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.whole_run.unprofiled_steps import MIN_STEPS, unprofiled_steps
from ddprof.sidecar import StepTimes
from ddprof.tables import Array

LONGER = 2.0  # waits outside over waits in the recording: from there the recording is not typical of the loader
MOST = 0.5  # of the longer waits: by so much the steps outside are longer at least, else the waits are hidden


class DrainedQueue(Struct, frozen=True):
    """Waits for batches outside the recording: `shares` of the mean step, by rank; over `steps` of `step_us`."""

    shares: Array
    steps: int
    step_us: float


def drained_queue(ranks: Sequence[RankFacts]) -> DrainedQueue | None:
    """Waits for loaders that deliver less than a batch per step, where the recording holds less than half of them; None
    elsewhere, and where the workers of a rank were not timed.
    """
    outside = [_timed(unprofiled_steps(facts)) for facts in ranks]
    inside = [_timed([step for step in facts.sidecar.steps if step.profiled]) for facts in ranks]
    batches_ns = [one.fetch_ns / one.workers for f in ranks if (one := f.sidecar.fetching) is not None and one.workers]
    if len(batches_ns) < max(1, len(ranks)) or min(map(len, outside)) < MIN_STEPS or not all(map(len, inside)):
        return None
    means_ns = np.array([each.mean(axis=0) for each in outside])
    (length_ns, waited_ns), (traced_ns, within_ns) = (
        averages.typical_row(np.array(means)) for means in (means_ns, [each.mean(axis=0) for each in inside])
    )
    is_slow = averages.typical(batches_ns) > length_ns - waited_ns and waited_ns > LONGER * within_ns
    if not is_slow or length_ns - traced_ns < MOST * (waited_ns - within_ns):
        return None
    return DrainedQueue(means_ns[:, 1] / means_ns[:, 0], min(map(len, outside)), float(length_ns) / 1e3)


def _timed(steps: Sequence[StepTimes]) -> Array:
    """Length and wait for the batch of the steps whose timers have both, ns, shape (steps, 2)."""
    rows = [(step.length_ns, step.data_ns) for step in steps if step.length_ns is not None and step.data_ns is not None]
    return np.array(rows, float).reshape(-1, 2)
