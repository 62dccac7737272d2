"""The outermost operators of a CPU rank with their shapes, for comparison with those of its peers.

A training thread also waits for a communication inside an operator, which lasts as long as the wait and computes
nothing meanwhile (autograd functions of tensor-parallel layers, compiled graphs, DTensor). Three forms are recognised:

- an operator that only waits (`wait_tensor`);
- a call into the library that returns when its communication has ended;
- a call that returns at once, after which the thread runs nothing until the communication has ended: Python is in
  `Work.wait`, which is not recorded.
"""

from __future__ import annotations

import json
import math
import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.device import lookup
from ddprof.analyzers.facts.model import HOST_OPERATORS, NO_STRING
from ddprof.analyzers.facts.names import matches, times
from ddprof.intervals import Intervals
from ddprof.model import Kind, RankTrace
from ddprof.tables import Array, Table

# Functional collectives (DTensor, torch.compile) call those of c10d and wait in an operator of their own.
LIBRARY = re.compile(r"^c10d::|^_?c10d_functional(_autograd)?::|^record_param_comms$")
_WAIT = re.compile(r"^_?c10d_functional(_autograd)?::wait_tensor$")
_WAKE_NS = 50_000  # a call that waits returns no earlier than this before the end of its communication
_RESUME_NS = 1_000_000  # a thread that waited resumes within this of the end, or within the time it waited
_MIN_SHARE = 0.5  # of the communication after the call, in which the thread runs nothing (ends are stamped late)


def outermost_operators(trace: RankTrace, threads: Array, occupied: Intervals, python: Intervals) -> Table:
    """HOST_OPERATORS of the training threads in time order, without communication and without what runs while the host
    is `occupied` (loading, saving). Durations exclude Python inside.
    """
    events = trace.events
    wanted = (events["kind"] == Kind.CPU_OP) & ~matches(LIBRARY, trace.strings)[events["name"]]
    rows = [np.flatnonzero(wanted & (events["track"] == thread)) for thread in threads.tolist()]
    row = np.concatenate([np.empty(0, np.int64), *(each[intervals.outermost(*times(events, each))] for each in rows)])
    row = row[~intervals.contains(occupied, events["ts_ns"][row])]
    row = row[np.argsort(events["ts_ns"][row], kind="stable")]
    start_ns, end_ns = times(events, row)
    return HOST_OPERATORS.table(
        {
            "start_ns": start_ns,
            "dur_ns": end_ns - start_ns - intervals.overlap(python, start_ns, end_ns),
            "name": events["name"][row],
            "shape": _shapes_within(trace, row),
        }
    )


def first_elements(shapes: str) -> int | None:
    """Elements of the first argument in a text of shapes: a tensor ("[[35, 2], []]") or a list ("[[[70]]]")."""
    try:
        dims = json.loads(shapes)
        first = dims[0]
        tensors = first if first and isinstance(first[0], list) else [first]
        return int(sum(math.prod(tensor) for tensor in tensors))
    except (ValueError, TypeError, IndexError, KeyError):
        return None


def shapes_of(trace: RankTrace, rows: Array) -> Array:
    """String index of the recorded shapes of some events."""
    at = lookup(trace.operators["row"], np.arange(len(trace.operators)), rows)
    return np.append(trace.operators["dims"].astype(np.int64), NO_STRING)[at]  # row -1 is none


def _shapes_within(trace: RankTrace, rows: Array) -> Array:
    """String index of the recorded shapes of some events, or of the first operator inside one without: a compiled
    region, or the engine's call of a backward function."""
    shape, events = shapes_of(trace, rows), trace.events
    bare = np.flatnonzero(shape == NO_STRING)
    shaped = np.sort(trace.operators["row"])
    for thread in np.unique(events["track"][rows[bare]]).tolist():
        on_thread = bare[events["track"][rows[bare]] == thread]
        inner = shaped[events["track"][shaped] == thread]
        start, end = times(events, rows[on_thread])
        at = np.searchsorted(events["ts_ns"][inner], start)
        holds = np.append(events["ts_ns"][inner], np.iinfo(np.int64).max)[at] < end
        shape[on_thread[holds]] = shapes_of(trace, inner[at[holds]])
    return shape


def waits_of(trace: RankTrace, thread: int, comms: Table, call: Array) -> Intervals:
    """Intervals in which `thread` waits for a communication. `call`: event row of each one's call, -1 if unknown."""
    events = trace.events
    start, end = times(events)
    on_thread = (events["kind"] == Kind.CPU_OP) & (events["track"] == thread)
    waiting = on_thread & matches(_WAIT, trace.strings)[events["name"]]
    here = np.flatnonzero((call >= 0) & on_thread[call]) if len(call) else np.empty(0, np.int64)
    called, ended_ns = call[here], comms["end_ns"][here]
    blocking = ended_ns <= end[called] + _WAKE_NS
    from_ns, to_ns = _idle_after(end[called[~blocking]], ended_ns[~blocking], on_thread, waiting, start, end)
    rows = np.union1d(np.flatnonzero(waiting), called[blocking]).astype(np.int64)
    return intervals.union(np.append(start[rows], from_ns), np.append(end[rows], to_ns))


def _idle_after(
    returned_ns: Array, ended_ns: Array, on_thread: Array, waiting: Array, start: Array, end: Array
) -> tuple[Array, Array]:
    """(from, to) of waits after non-blocking calls: from the return to the end of the communication."""
    bounds = np.concatenate([start[on_thread], end[on_thread]])
    explicit = np.concatenate([waiting[on_thread], np.zeros(int(on_thread.sum()), bool)])
    order = np.argsort(bounds, kind="stable")
    bounds, explicit = bounds[order], explicit[order]
    at = np.searchsorted(bounds, returned_ns, side="right")
    is_followed = at < len(bounds)
    returned_ns, ended_ns, at = returned_ns[is_followed], ended_ns[is_followed], at[is_followed]
    resumed_ns, lasts_ns = bounds[at], ended_ns - returned_ns
    waits = ~explicit[at]  # where an operator that waits follows, the time before it was no wait
    waits &= resumed_ns - returned_ns >= _MIN_SHARE * lasts_ns
    waits &= resumed_ns - ended_ns <= np.maximum(_RESUME_NS, lasts_ns)
    return returned_ns[waits], np.minimum(resumed_ns, ended_ns)[waits]
