"""Rows of MEMBERS by rank, indexed once: a search per rank would pass over all rows a thousand times."""

from __future__ import annotations

import numpy as np

from ddprof.derived_once import remembered
from ddprof.tables import Array, Table


def members_of(members: Table, position: int) -> Array:
    """The rows of a rank, in order."""
    order, begins = _by_rank(members)
    return order[begins[position] : begins[position + 1]] if position + 1 < len(begins) else order[:0]


@remembered
def _by_rank(members: Table) -> tuple[Array, Array]:
    """All rows sorted by rank, and the first row of each position; shape (positions + 1,)."""
    rank = members["rank"]
    return np.argsort(rank, kind="stable"), np.concatenate(([0], np.cumsum(np.bincount(rank))))
