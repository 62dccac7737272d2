"""Loader workers restarted for every epoch: the extra time of an epoch's first batch."""

from __future__ import annotations

from statistics import median

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.sidecar import Pause, Sidecar

MIN_EPOCHS = 2  # after the first, in which the workers start anyway


def remakes_workers(facts: RankFacts) -> bool:
    """True where the rank's loader ends its workers with every epoch."""
    loader = facts.sidecar.loader
    return bool(loader.num_workers) and loader.persistent_workers is False


def remade_workers(sidecar: Sidecar) -> list[Pause]:
    """Loader time at the first batch of each epoch but the first, above that of the other batches.

    Epochs are as long as the loader says, and begin where its batches take longest.
    """
    length = sidecar.loader.batches_per_epoch or 0
    timed = [
        (step.index, step.start_ns, step.data_ns)
        for step in sidecar.steps
        if step.index is not None and step.start_ns is not None and step.data_ns is not None
    ]
    if length < 2 or len(timed) < MIN_EPOCHS * length:
        return []
    place = np.array([index % length for index, _, _ in timed])
    taken = np.array([data_ns for _, _, data_ns in timed], float)
    typical = np.array([np.median(taken[place == at]) if (place == at).any() else 0.0 for at in range(length)])
    first = int(np.argmax(typical))
    usual = median(taken[place != first].tolist())
    epochs = [(start_ns, int(data_ns - usual)) for index, start_ns, data_ns in timed[1:] if index % length == first]
    return [Pause(start_ns=start_ns, dur_ns=dur_ns) for start_ns, dur_ns in epochs if dur_ns > 0]
