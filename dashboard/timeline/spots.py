"""Spans as the bins of a window that they touch: enough to mark where something is, whatever its number."""

from __future__ import annotations

import numpy as np

from ddprof.tables import Array


def spots(start_ns: Array, end_ns: Array, lo_ns: int, hi_ns: int, bins: int) -> list[int]:
    """First and last bin of each run of bins that spans touch, flat: [first, last, first, last, ...]."""
    inside = (start_ns < hi_ns) & (end_ns > lo_ns)
    width = max(1, hi_ns - lo_ns)
    first = np.clip((start_ns[inside] - lo_ns) / width * bins, 0, bins - 1).astype(np.int64)
    last = np.clip((end_ns[inside] - 1 - lo_ns) / width * bins, 0, bins - 1).astype(np.int64)
    touched = np.zeros(bins + 1, np.int64)
    np.add.at(touched, first, 1)
    np.add.at(touched, last + 1, -1)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], (np.cumsum(touched[:-1]) > 0).astype(np.int8), [0]))))
    edges[1::2] -= 1
    return [int(edge) for edge in edges]
