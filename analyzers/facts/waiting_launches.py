"""Calls that return only when the device has done what they started: copies, and under CUDA_LAUNCH_BLOCKING=1 all.

A synchronising call after each kernel is another thing: there the launch call itself returns early.
"""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.facts.model import RankFacts, Work
from ddprof.derived_once import remembered
from ddprof.tables import NULL, Array, Table

# Of the kernels: at most 5 % on 29 recordings of V100 to H200 and MI300X (2026-11-28), where calls were slow by chance.
# Copies inside the device and memsets count among them, and need not wait.
MOST = 0.8
FEWEST = 20  # kernels; fewer are chance
# How long before the recorded end of what it waited for a call may return. A copy from pageable memory returns when its
# last part lies in the driver's pinned buffer: 5 to 17 us before its end on an H200 (64 copies, 2026-11-28).
RETURNS_EARLY_NS = 20_000
HIDES = "launch calls wait for their kernels, which hides what else the device waits for"


@remembered
def waiting_launches(ops: Table) -> Array:
    """Mask of the device operations (DEVICE_OPS) whose launch call waited for their end: none where not nearly all
    kernels are such.
    """
    waited = (ops["work"] != Work.COPY) & waited_for(ops)
    computing = waited[(ops["work"] == Work.COMPUTE) & (ops["launch_ns"] != NULL)]
    is_usual = len(computing) >= FEWEST and computing.sum() >= MOST * len(computing)
    return waited if is_usual else np.zeros(len(ops), bool)


def waited_for(ops: Table) -> Array:
    """Mask of the device operations (DEVICE_OPS) whose call returned when they were done (copies: or nearly so), after
    they had begun: an asynchronous call returns before.
    """
    returns_ns, early_ns = ops["launch_end_ns"], np.where(ops["work"] == Work.COPY, RETURNS_EARLY_NS, 0)
    held = (returns_ns > ops["start_ns"]) & (returns_ns >= ops["end_ns"] - early_ns)
    return np.asarray(held & (ops["launch_ns"] != NULL) & (ops["launch_ns"] <= ops["start_ns"]))


@remembered
def launches_wait(facts: RankFacts) -> bool:
    """True where nearly all launch calls of a rank wait for their kernels."""
    return bool(waiting_launches(facts.device_ops).any())
