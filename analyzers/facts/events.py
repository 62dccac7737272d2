"""Events of a trace by kind and name: their rows, in the order of start and of equals the longest first, and times."""

from __future__ import annotations

import numpy as np

from ddprof.derived_once import remembered
from ddprof.intervals import Intervals
from ddprof.model import Kind, RankTrace
from ddprof.tables import Array, Table, among


def rows_of(trace: RankTrace, kind: Kind, named: Array, threads: Array | None = None) -> Array:
    """Rows of the events of a kind with some names (mask of the trace's strings), on some host tracks or on all."""
    events = trace.events
    rows: Array = _of_kind(trace, kind) if named.any() else np.empty(0, np.int64)
    rows = rows[named[events["name"][rows]]]
    return rows if threads is None else rows[among(events["track"][rows], threads)]


@remembered
def _of_kind(trace: RankTrace, kind: Kind) -> Array:
    """Rows of the events of a kind."""
    return np.flatnonzero(trace.events["kind"] == kind)


def times(events: Table, rows: Array | slice = slice(None)) -> Intervals:
    """Start and end of each event, or of some (rows or a mask), ns."""
    start = events["ts_ns"][rows]
    return start, start + events["dur_ns"][rows]


def on_threads(events: Table, rows: Array) -> dict[str, Array]:
    """Columns start_ns, end_ns, thread and name of some events (rows)."""
    start, end = times(events, rows)
    return {"start_ns": start, "end_ns": end, "thread": events["track"][rows], "name": events["name"][rows]}
