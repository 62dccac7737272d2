"""Pieces of time (start, end, row of operations), each moment in one piece."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.operations.model import BUSY
from ddprof.tables import Array, Table

Pieces = tuple[Array, Array, Array]


def held(operations: Table, rows: Array) -> Pieces:
    """The time of some operations; where several run, it is that of the one that ends last."""
    start, end, row = intervals.holders(operations["start_ns"][rows], operations["end_ns"][rows])
    return start, end, rows[row]


def busy_table(parts: Sequence[Pieces], steps: Table) -> Table:
    """BUSY from pieces that do not overlap: what of them lies in a step."""
    start, end, row = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(start, kind="stable")
    start, end, row = start[order], end[order], row[order]
    lo, hi, piece, step = intervals.intersect_rows((start, end), steps.bounds)
    return BUSY.table({"start_ns": lo, "end_ns": hi, "operation": row[piece], "step": step})
