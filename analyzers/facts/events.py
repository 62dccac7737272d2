"""Events of a trace by kind and name: their rows, in the order of start and of equals the longest first, and times."""

from __future__ import annotations

import numpy as np

from ddprof.intervals import Intervals
from ddprof.model import Kind, RankTrace
from ddprof.tables import Array, Table, among


def rows_of(trace: RankTrace, kind: Kind, named: Array, threads: Array | None = None) -> Array:
    """Rows of the events of a kind with some names (mask of the trace's strings), on some host tracks or on all."""
    events = trace.events
    is_one = (events["kind"] == kind) & named[events["name"]] if len(named) else np.zeros(len(events), bool)
    return np.flatnonzero(is_one if threads is None else is_one & among(events["track"], threads))


def times(events: Table, rows: Array | slice = slice(None)) -> Intervals:
    """Start and end of each event, or of some (rows or a mask), ns."""
    start = events["ts_ns"][rows]
    return start, start + events["dur_ns"][rows]


def on_threads(events: Table, rows: Array) -> dict[str, Array]:
    """Columns start_ns, end_ns, thread and name of some events (rows)."""
    start, end = times(events, rows)
    return {"start_ns": start, "end_ns": end, "thread": events["track"][rows], "name": events["name"][rows]}
