"""Attribution of a time measured on each rank: a time that only few ranks have is theirs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof.tables import Array

FEW_SHARE = 0.25  # of the time of the rank that has most: a rank with less has no part in it


def having(times: Array | Sequence[float]) -> Array:
    """Positions of the ranks with a part in a time (one value per rank)."""
    values = np.asarray(times, float)
    return np.flatnonzero(values > FEW_SHARE * values.max(initial=0.0))


def whose(times: Array | Sequence[float]) -> Array:
    """Positions of the few ranks that alone have a time; empty where more than half of the ranks or none have it."""
    return few(having(times), len(times))


def few(positions: Array, ranks: float) -> Array:
    """The positions where they are at most half of so many ranks, else none: what most have is nobody's own."""
    return positions if len(positions) <= ranks / 2 else positions[:0]
