"""What a CPU rank computes: its outermost operators with their shapes, to be compared with those of its peers."""

from __future__ import annotations

import json
import math

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.cpu.waits import LIBRARY
from ddprof.analyzers.facts.model import NO_STRING
from ddprof.analyzers.facts.names import matches
from ddprof.analyzers.facts.operation_tables import HOST_OPERATORS
from ddprof.intervals import Intervals
from ddprof.model import Kind, RankTrace
from ddprof.tables import Array, Table


def outermost_operators(trace: RankTrace, threads: Array, occupied: Intervals, python: Intervals) -> Table:
    """HOST_OPERATORS of the training threads, in time order, without communication and what runs while the host is
    `occupied` with something else than training (loading, saving). How long each takes is without the Python in it.
    """
    events = trace.events
    wanted = (events["kind"] == Kind.CPU_OP) & ~matches(LIBRARY, trace.strings)[events["name"]]
    rows = [_outermost(events, np.flatnonzero(wanted & (events["track"] == thread))) for thread in threads.tolist()]
    row = np.concatenate(rows) if rows else np.empty(0, np.int64)
    row = row[~intervals.contains(occupied, events["ts_ns"][row])]
    row = row[np.argsort(events["ts_ns"][row], kind="stable")]
    start_ns, dur_ns = events["ts_ns"][row], events["dur_ns"][row]
    return HOST_OPERATORS.table(
        {
            "start_ns": start_ns,
            "dur_ns": dur_ns - intervals.overlap(python, start_ns, start_ns + dur_ns),
            "name": events["name"][row],
            "shape": shapes_of(trace, row),
        }
    )


def _outermost(events: Table, rows: Array) -> Array:
    """The events of one thread that begin after all earlier ones have ended."""
    start, end = events["ts_ns"][rows], (events["ts_ns"] + events["dur_ns"])[rows]
    order = np.lexsort((-end, start))
    if not len(order):
        return rows
    before = np.concatenate(([start.min()], np.maximum.accumulate(end[order])[:-1]))
    return np.asarray(rows[order[start[order] >= before]])


def first_elements(shapes: str) -> int | None:
    """Elements of the first argument in a text of shapes, a tensor ("[[35, 2], []]") or a list of them ("[[[70]]]")."""
    try:
        dims = json.loads(shapes)
        first = dims[0]
        tensors = first if first and isinstance(first[0], list) else [first]
        return int(sum(math.prod(tensor) for tensor in tensors))
    except (ValueError, TypeError, IndexError, KeyError):
        return None


def shapes_of(trace: RankTrace, rows: Array) -> Array:
    """The recorded shapes of some events, as a number of a string."""
    operators = trace.operators
    if not len(operators):
        return np.full(len(rows), NO_STRING)
    order = np.argsort(operators["row"], kind="stable")
    at = order[np.minimum(np.searchsorted(operators["row"][order], rows), len(order) - 1)]
    return np.where(operators["row"][at] == rows, operators["dims"][at].astype(np.int64), NO_STRING)
