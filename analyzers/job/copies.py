"""Copies between pageable host memory and the device, and what they are of: batches, or state kept on the host.

CUDA names the kind of memory; elsewhere (ROCm) the calls block until the copy is done.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.device import waited_for
from ddprof.analyzers.facts.model import Phase, RankFacts, Work
from ddprof.analyzers.facts.names import is_from_device, is_to_device, matches
from ddprof.analyzers.facts.work import launched_in
from ddprof.derived_once import remembered
from ddprof.tables import NULL, Array

_PAGEABLE = re.compile(r"pageable", re.IGNORECASE)
_PINNED = re.compile(r"pinned", re.IGNORECASE)
# Smaller copies are staged and return at once whatever the memory: only from this size on does blocking tell. What is
# smaller and comes from the device is a value that the host waits for (host.sync).
MIN_SIZE_BYTES = 64 * 1024
TENSORS = 4  # per step, to and from the device: a model's state is more tensors than the batch and what is made of it
MOST = 0.5  # of the bytes: what the copies are of
BATCHES, OTHER, STATE = "batches", "tensors", "state"


def pageable_copies(facts: RankFacts) -> Array:
    """Mask of device operations that copy from or to pageable host memory; shape (device_ops,)."""
    return np.asarray(copies_to_device(facts) | copies_from_device(facts))


@remembered
def copies_to_device(facts: RankFacts) -> Array:
    """Mask of device operations that copy from pageable host memory to the device; shape (device_ops,)."""
    return _through_pageable(facts, is_to_device(facts.strings))


@remembered
def copies_from_device(facts: RankFacts) -> Array:
    """Mask of device operations that copy to pageable host memory, but for values and what a save or an evaluation
    needs: what is launched in it, or last before it. Shape (device_ops,)."""
    ops = facts.device_ops
    copies = _through_pageable(facts, is_from_device(facts.strings))
    if not copies.any():
        return copies
    begins, ends = intervals.union(*facts.spans_of("checkpoint").bounds)
    computing = np.sort(ops["launch_ns"][ops["work"] == Work.COMPUTE])
    last = np.append(computing, begins[:1])[np.maximum(np.searchsorted(computing, begins) - 1, 0)]
    saving = intervals.contains(intervals.union(np.minimum(last, begins), ends), ops["launch_ns"])
    return np.asarray(copies & (ops["size_bytes"] >= MIN_SIZE_BYTES) & ~saving)


def _through_pageable(facts: RankFacts, directed: Array) -> Array:
    """Mask of device operations that copy through pageable memory; `directed`: mask of names, by string."""
    ops = facts.device_ops
    if not len(ops):
        return np.empty(0, bool)
    copies = (ops["work"] == Work.COPY) & directed[ops["name"]]
    named = matches(_PAGEABLE, facts.strings)[ops["name"]]
    pinned = matches(_PINNED, facts.strings)[ops["name"]]
    large = (ops["size_bytes"] == NULL) | (ops["size_bytes"] >= MIN_SIZE_BYTES)
    return np.asarray(copies & (named | (waited_for(ops) & large & ~pinned)))


@remembered
def copies_of_state(facts: RankFacts) -> Array:
    """Mask of the pageable copies of what is kept on the host: to the device inside backward and optimizer, and both
    ways where tensors of one size, or of half or twice that (another precision), come back. Shape (device_ops,).
    """
    up, down = copies_to_device(facts), copies_from_device(facts)
    late = up & (launched_in(facts, Phase.BACKWARD) | launched_in(facts, Phase.OPTIMIZER))
    if not down.any():
        return late
    size = facts.device_ops["size_bytes"]
    fewest = TENSORS * len(facts.steps)
    back = up & _sizes_among(size, size[down])
    gone = down & _sizes_among(size, size[up])
    if min(back.sum(), gone.sum()) < fewest or not MOST <= back.sum() / gone.sum() <= 1 / MOST:
        back, gone = np.zeros_like(up), np.zeros_like(up)
    return np.asarray(back | gone | late)


def exposed_copies(facts: RankFacts, chosen: Array) -> intervals.Intervals:
    """Stretches in which the copies of a mask run with nothing beside them."""
    copies = intervals.union(*facts.device_ops.bounds_of(chosen))
    return intervals.intersect(copies, facts.gaps_of("memcpy").bounds)


def _sizes_among(size: Array, known: Array) -> Array:
    large = known[known >= MIN_SIZE_BYTES]
    return np.isin(size, np.concatenate((large, 2 * large, large // 2))) & (size >= MIN_SIZE_BYTES)


@remembered
def content_of(facts: RankFacts) -> str:
    """BATCHES, STATE that goes to the host and comes back, or OTHER tensors: what most of a rank's pageable copies are
    of, by their bytes, or by their time where sizes are not recorded.
    """
    ops = facts.device_ops
    copies, state, down = pageable_copies(facts), copies_of_state(facts), copies_from_device(facts)
    has_sizes = copies.any() and bool((ops["size_bytes"][copies] != NULL).all())
    weight = np.where(copies, ops["size_bytes"] if has_sizes else ops["end_ns"] - ops["start_ns"], 0)
    if down.any() and weight[state].sum() > MOST * weight.sum():
        return STATE
    is_fed = bool((ops["work"] == Work.COMPUTE).any())  # batches are for a model
    return BATCHES if is_fed and weight[state | down].sum() <= MOST * weight.sum() else OTHER
