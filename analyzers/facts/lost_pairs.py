"""Launch calls that are missing from a file together with their kernels.

Where a buffer drops both, no record lacks its other half, and an idle device looks like a slow host. Operators reveal
it: of two calls of one operator with equal shapes at the same place in two steps, one launched work and the other did
not. Extra work in one step (a library that tries kernels) is one-sided; lost records leave holes in both.
"""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.completeness import LOST_SHARE, MIN_LOST
from ddprof.analyzers.facts.cpu.operators import shapes_of
from ddprof.analyzers.facts.device import launch_rows
from ddprof.analyzers.facts.events import rows_of
from ddprof.analyzers.facts.names import is_launch
from ddprof.model import DEVICE_KINDS, HealthNote, Kind, RankTrace
from ddprof.tables import NULL, Array, Table, distinct, of_kinds, stable_order
from ddprof.units import format_share


def lost_pairs_note(trace: RankTrace, steps: Table) -> list[HealthNote]:
    """A note where over LOST_SHARE of the launching calls, and MIN_LOST in two steps, launched in only one of the two,
    equally often in either.
    """
    if not len(steps):
        return []
    call, step, launched = _calls(trace, steps)
    order = stable_order(call)
    call, step, launched = call[order], step[order], launched[order]
    again = (call[1:] == call[:-1]) & (step[1:] == step[:-1] + 1)
    one, two, at = launched[:-1][again], launched[1:][again], step[1:][again]
    either = [np.bincount(at[only], minlength=len(steps)) for only in (one & ~two, two & ~one)]
    lost, launches = 2 * int(np.minimum(*either).sum()), int((one | two).sum())
    if lost < MIN_LOST * max(len(steps) - 1, 1) or lost <= LOST_SHARE * launches:
        return []
    issue = f"{trace.path}: {format_share(lost / launches)} of the operators that launch work did so in one step only"
    return [HealthNote(issue, "launches are missing, so no finding about the host uses this time", "error")]


def _calls(trace: RankTrace, steps: Table) -> tuple[Array, Array, Array]:
    """Calls of operators in steps, by time: each as a number that its likes in other steps have too, its step, and
    whether it launched work. An operator that is called more often, with these shapes, in another step has other
    numbers there.
    """
    events = trace.events
    at_ns, external = events["ts_ns"], events["external_id"]
    rows = np.flatnonzero((events["kind"] == Kind.CPU_OP) & (external != NULL))
    step = intervals.row_at((steps["mark_ns"], steps["mark_end_ns"]), at_ns[rows])
    rows, step = rows[step >= 0], step[step >= 0]
    _, kind = distinct(events["name"][rows], shapes_of(trace, rows))
    order = stable_order(kind)
    part = kind[order] * len(steps) + step[order]
    first = np.flatnonzero(np.diff(part, prepend=-1))
    count = np.diff(first, append=len(rows))
    (_, times), alike = distinct(part[first] // max(len(steps), 1), count)
    numbers = np.cumsum(times) - times  # the first of each kind that is called so many times
    call = np.empty(len(rows), np.int64)
    call[order] = np.arange(len(rows)) + np.repeat(numbers[alike] - first, count)
    return call, step, np.isin(external[rows], _above_work(trace))


def _above_work(trace: RankTrace) -> Array:
    """External ids of the operators above each device operation and each launch call: one half suffices, as a record
    lost at random leaves the other.
    """
    events, external = trace.events, trace.events["external_id"]
    rows = np.flatnonzero(of_kinds(events["kind"], DEVICE_KINDS))
    launch = launch_rows(trace)[rows]
    called = rows_of(trace, Kind.RUNTIME, is_launch(trace.strings))
    return np.unique(np.concatenate((external[rows], external[launch[launch >= 0]], external[called])))
