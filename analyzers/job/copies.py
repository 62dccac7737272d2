"""Copies from pageable host memory: CUDA names them; elsewhere (ROCm) their calls block until the copy is done."""

from __future__ import annotations

import re

import numpy as np

from ddprof.analyzers.facts.model import RankFacts, Work
from ddprof.analyzers.facts.names import is_to_device, matches
from ddprof.analyzers.facts.waiting_launches import waited_for
from ddprof.tables import NULL, Array

_PAGEABLE = re.compile(r"pageable", re.IGNORECASE)
_PINNED = re.compile(r"pinned", re.IGNORECASE)
# Smaller copies are staged and return at once whatever the memory: only from this size on does blocking tell.
MIN_SIZE_BYTES = 64 * 1024


def pageable_copies(facts: RankFacts) -> Array:
    """Mask of device operations that copy from pageable host memory to the device; shape (device_ops,)."""
    ops = facts.device_ops
    if not len(ops):
        return np.empty(0, bool)
    upload = (ops["work"] == Work.COPY) & is_to_device(facts.strings)[ops["name"]]
    named = matches(_PAGEABLE, facts.strings)[ops["name"]]
    pinned = matches(_PINNED, facts.strings)[ops["name"]]
    large = (ops["size_bytes"] == NULL) | (ops["size_bytes"] >= MIN_SIZE_BYTES)
    return np.asarray(upload & (named | (waited_for(ops) & large & ~pinned)))
