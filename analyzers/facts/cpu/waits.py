"""When a training thread of a CPU rank waits for a communication inside an operator.

Autograd functions of tensor parallel layers, compiled graphs and DTensor do so: the operator lasts as long as the wait,
and computes nothing meanwhile. Three forms are told:

- an operator that only waits (`wait_tensor`);
- a call into the library that returns once its communication has ended;
- a call that returns at once, after which the thread runs nothing until the communication has ended: Python waits in
  `Work.wait`, of which nothing is recorded.
"""

from __future__ import annotations

import re

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.names import matches
from ddprof.intervals import Intervals
from ddprof.model import Kind, RankTrace
from ddprof.tables import Array, Table

# Functional collectives (DTensor, torch.compile) call c10d's and wait in an operator of their own.
LIBRARY = re.compile(r"^c10d::|^_?c10d_functional(_autograd)?::|^record_param_comms$")
_WAIT = re.compile(r"^_?c10d_functional(_autograd)?::wait_tensor$")
_WAKE_NS = 50_000  # a call that waits returns this soon before, or long after, its communication has ended
_RESUME_NS = 1_000_000  # the thread goes on this soon after the end, or after as long as it had waited
_MIN_SHARE = 0.5  # of the communication's time: the thread runs nothing meanwhile (backends stamp its end late)


def waits_of(trace: RankTrace, thread: int, comms: Table, call: Array) -> Intervals:
    """When `thread` waits. `call`: for each of `comms` the event row of its call, -1 where none was recorded."""
    events = trace.events
    start, end = events["ts_ns"], events["ts_ns"] + events["dur_ns"]
    mine = (events["kind"] == Kind.CPU_OP) & (events["track"] == thread)
    waiting = mine & matches(_WAIT, trace.strings)[events["name"]]
    here = np.flatnonzero((call >= 0) & mine[call]) if len(call) else np.empty(0, np.int64)
    called, ended_ns = call[here], comms["end_ns"][here]
    blocking = ended_ns <= end[called] + _WAKE_NS
    from_ns, to_ns = _idle_after(end[called[~blocking]], ended_ns[~blocking], mine, waiting, start, end)
    rows = np.union1d(np.flatnonzero(waiting), called[blocking]).astype(np.int64)
    return intervals.union(np.append(start[rows], from_ns), np.append(end[rows], to_ns))


def _idle_after(
    returned_ns: Array, ended_ns: Array, mine: Array, waiting: Array, start: Array, end: Array
) -> tuple[Array, Array]:
    """From the return of calls until their communication has ended, where the thread waits for that: (from, to)."""
    bounds = np.concatenate([start[mine], end[mine]])
    explicit = np.concatenate([waiting[mine], np.zeros(int(mine.sum()), bool)])
    order = np.argsort(bounds, kind="stable")
    bounds, explicit = bounds[order], explicit[order]
    at = np.searchsorted(bounds, returned_ns, side="right")
    known = at < len(bounds)
    returned_ns, ended_ns, at = returned_ns[known], ended_ns[known], at[known]
    resumed_ns, lasts_ns = bounds[at], ended_ns - returned_ns
    waits = ~explicit[at]  # an operator that waits follows: what came before it was no wait
    waits &= resumed_ns - returned_ns >= _MIN_SHARE * lasts_ns
    waits &= resumed_ns - ended_ns <= np.maximum(_RESUME_NS, lasts_ns)
    return returned_ns[waits], np.minimum(resumed_ns, ended_ns)[waits]
