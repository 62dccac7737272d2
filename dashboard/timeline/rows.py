"""Overlapping or nested spans laid out in rows, so that no two spans of a row overlap."""

from __future__ import annotations

import numpy as np

from ddprof.tables import Array


def disjoint_rows(start_ns: Array, end_ns: Array) -> list[Array]:
    """Indices of the spans of each row, outermost first; as many rows as spans run at once."""
    left = np.lexsort((-end_ns, start_ns))
    rows = []
    while len(left):
        chain = _first_fit(start_ns[left], end_ns[left])
        rows.append(left[chain])
        left = left[~chain]
    return rows


def _first_fit(start_ns: Array, end_ns: Array) -> Array:
    """Marks spans, sorted by start, that can share a row: each begins at or after the end of the one taken before."""
    taken = np.zeros(len(start_ns), bool)
    if not np.any(start_ns[1:] < end_ns[:-1]):
        taken[:] = True
        return taken
    following = np.maximum(np.searchsorted(start_ns, end_ns, side="left"), np.arange(1, len(start_ns) + 1)).tolist()
    at = 0
    while at < len(start_ns):
        taken[at] = True
        at = following[at]
    return taken
