"""Stalls and silences of a host: long stops inside calls that usually return at once, and outside any call.

The calls of launching threads repeat, layer by layer and step by step. A pair of neighbouring event bounds (a call
begins or ends) that recurs shows how long the host usually takes between them. A host that takes far longer once was
stopped by something outside its program; a time that recurs, however long, is the program's. Of several launching
threads one works at a time (forward on the training thread, backward on autograd's), so their bounds form one sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.device import waiting_launches
from ddprof.analyzers.facts.model import NO_STRING, SPANS, STALLS
from ddprof.analyzers.facts.names import times
from ddprof.intervals import Intervals
from ddprof.model import Kind, RankTrace
from ddprof.tables import NULL, Array, Table, among, first_rows, of_kinds

TIMES_USUAL = 10.0  # an order of magnitude over the usual time of the same place
USUAL_PERCENT = 75  # of a place's occurrences take no longer than its usual time: what many of them do is the program
MIN_OCCURRENCES = 3  # of a place; fewer have no usual time
NEAR = 64  # events looked at first for the one around a stall; most calls are shallow
# A thread that sleeps and is woken, or that reads a page from a solid-state disk, is away for about 100 us.
MIN_STOP_NS = 100_000
# A thread that waits for a lock on another core is back after 30 to 60 us; shorter stops are the scatter of launches,
# which take about 5 us. Of steps of 2.6 ms many such stops take a sixth (2026-11-29).
MIN_STALL_NS = 30_000
CALLS = (Kind.CPU_OP, Kind.RUNTIME)  # compiled code: what lies between its bounds does not depend on a script
_HOST = (*CALLS, Kind.ANNOTATION, Kind.PYTHON)


@dataclass(frozen=True)
class HostBounds:
    """Starts and ends of host events in time order. `rows`: the events, rows of the trace, by start."""

    rows: Array
    at_ns: Array  # (bounds,)
    owner: Array  # (bounds,), row of the event that begins or ends
    begins: Array  # (bounds,), bool: it begins

    @cached_property
    def stops(self) -> Array:
        """Indices of bounds followed by no other bound for MIN_STALL_NS."""
        return np.flatnonzero(np.diff(self.at_ns) >= MIN_STALL_NS)


def host_bounds(trace: RankTrace, threads: Array) -> HostBounds:
    """Bounds of the events of some threads (`threads`: host tracks)."""
    events = trace.events
    is_host = of_kinds(events["kind"], _HOST) & among(events["track"], threads) & (events["dur_ns"] >= 0)
    rows = np.flatnonzero(is_host).astype(np.int32)
    at_ns = np.concatenate(times(events, rows))
    order = np.argsort(at_ns, kind="stable")
    begins, at_ns = order < len(rows), at_ns[order]
    np.subtract(order, len(rows), out=order, where=~begins)  # of millions of bounds: no copy
    return HostBounds(rows, at_ns, rows[order], begins)


def host_stalls(trace: RankTrace, bounds: HostBounds, ops: Table, spans: Table) -> Table:
    """STALLS of the launching threads (`bounds`: of their events), by start.

    Excluded are stops that `spans` (HOST_SPANS) explain, launch calls that wait for room in the queue or for their
    kernels, and the first call of each name and launch of each kernel, which load libraries and modules.
    """
    events, rows, at_ns, owner, long = trace.events, bounds.rows, bounds.at_ns, bounds.owner, bounds.stops
    if len(rows) < MIN_OCCURRENCES or not len(long):
        return STALLS.empty()
    usual, is_first = _usual(trace, bounds)
    start, end = at_ns[long], at_ns[long + 1]
    is_stall = (usual > 0) & (end - start >= TIMES_USUAL * usual) & ~is_first
    long, usual, start, end = (values[is_stall] for values in (long, usual, start, end))
    drained = _is_drained(ops, end)
    order = np.argsort(ops["launch_ns"], kind="stable")
    order = order[ops["launch_ns"][order] != NULL]
    excused = waiting_launches(ops)[order]
    excused[first_rows(ops["name"][order])] = True
    calls = ops["launch_ns"][order], ops["launch_end_ns"][order]
    keep = ~_within(spans.bounds, start, end) & ~_within((calls[0][excused], calls[1][excused]), start, end)
    keep &= drained | ~_within(calls, start, end)
    kept = np.flatnonzero(keep)
    around = _innermost(trace, rows, start[kept], end[kept])
    placed = _is_placed(events["kind"], owner[long[kept]], owner[long[kept] + 1], around)
    kept, around = kept[placed], around[placed]
    return STALLS.table(
        {
            "start_ns": start[kept],
            "end_ns": end[kept],
            "usual_ns": usual[kept],
            "name": np.where(around >= 0, events["name"][around], NO_STRING),
            "drains": drained[kept],
        }
    )


def _usual(trace: RankTrace, bounds: HostBounds) -> tuple[Array, Array]:
    """Usual length (ns) of the place of each stop, 0 where it has none, and whether it is the place's first.

    A place is a pair of bounds. Where the pair is rare, a stretch at the beginning of a compiled call is of that call,
    whatever follows. Any other is of the code around.
    """
    bound = 2 * trace.events["name"][bounds.owner] + ~bounds.begins  # + 1 for an end
    begins_stop = np.zeros(int(bound.max()) + 1, bool)
    begins_stop[bound[bounds.stops]] = True
    rows = np.flatnonzero(begins_stop[bound[:-1]])  # stretches of the other places are compared with no stop
    before, after = bound[rows].astype(np.int64), bound[rows + 1]
    length, stops = bounds.at_ns[rows + 1] - bounds.at_ns[rows], np.searchsorted(rows, bounds.stops)
    usual, is_first = _usual_of(before * len(begins_stop) + after, length, stops)
    begins_call = bounds.begins[rows] & of_kinds(trace.events["kind"], CALLS)[bounds.owner[rows]]
    rare = np.flatnonzero(usual == 0)
    usual[rare], is_first[rare] = _usual_of(np.where(begins_call, before, NULL), length, stops[rare])
    return usual, is_first


def _usual_of(key: Array, length: Array, long: Array) -> tuple[Array, Array]:
    """Usual length of the stretches that share each long stretch's key, 0 for rare keys and NULL; a mask of firsts."""
    wanted = np.unique(key[long][key[long] != NULL])
    if not len(wanted):
        return np.zeros(len(long), np.int64), np.zeros(len(long), bool)
    rows = np.flatnonzero(wanted[np.minimum(np.searchsorted(wanted, key), len(wanted) - 1)] == key)
    rows = rows[np.lexsort((length[rows], key[rows]))]
    begin = np.searchsorted(key[rows], wanted)
    count = np.searchsorted(key[rows], wanted, side="right") - begin
    upper = length[rows][begin + (USUAL_PERCENT * (count - 1)) // 100]
    first = np.minimum.reduceat(rows, begin)
    at = np.minimum(np.searchsorted(wanted, key[long]), len(wanted) - 1)
    is_common = (wanted[at] == key[long]) & (count[at] >= MIN_OCCURRENCES)
    return np.where(is_common, np.maximum(upper[at], 1), 0), is_common & (first[at] == long)


def _within(spans: Intervals, start: Array, end: Array) -> Array:
    """Mask of stretches inside one of some spans, which are sorted by start and may overlap."""
    reach = np.append(np.maximum.accumulate(spans[1]), NULL)
    return np.asarray(reach[np.searchsorted(spans[0], start, side="right") - 1] >= end)


def _is_drained(ops: Table, at_ns: Array) -> Array:
    """Mask of instants by which the device has begun everything launched before: it waits for the host."""
    has_launch = ops["launch_ns"] != NULL
    launched = np.searchsorted(np.sort(ops["launch_end_ns"][has_launch]), at_ns, side="left")
    begun = np.searchsorted(np.sort(ops["start_ns"][has_launch]), at_ns, side="right")
    return np.asarray(launched <= begun)


def _is_placed(kind: Array, before: Array, after: Array, around: Array) -> Array:
    """Mask of stretches with a comparable place: inside a call, or bounded by an operator or range.

    Between two bare launches any part of the script may run, so those stretches are not comparable. `before`, `after`:
    event rows of the bounds; `around`: of the innermost event around, -1 for none.
    """
    inside = (around >= 0) & of_kinds(kind[around], CALLS)
    return np.asarray(inside | (kind[before] != Kind.RUNTIME) | (kind[after] != Kind.RUNTIME))


def _innermost(trace: RankTrace, rows: Array, start: Array, end: Array) -> Array:
    """Row of the innermost event around each stretch; -1 outside any."""
    events = trace.events
    begun, ended = times(events, rows)
    innermost = np.full(len(start), -1, np.int64)
    behind = np.searchsorted(begun, start, side="right")
    for stretch, (last, hi) in enumerate(zip(behind.tolist(), end.tolist(), strict=True)):  # stalls, not events
        reach = NEAR
        while last > 0 and innermost[stretch] < 0:  # backwards from the last event that has begun, further each time
            first = max(0, last - reach)
            around = np.flatnonzero(ended[first:last] >= hi)
            if len(around):
                innermost[stretch] = rows[first + around[-1]]
            last, reach = first, 8 * reach
    return innermost


def host_silences(trace: RankTrace, bounds: HostBounds, spans: Table) -> Table:
    """SPANS, by start: stretches without an open call or any bound, except those that `spans` (HOST_SPANS) name:
    fetching, saving, collecting.

    The trace does not show what the host does then: Python between calls, a lock, or a wait for another rank. Ranges
    and Python frames may be open around a silence; an open call rules one out.
    """
    stops = bounds.stops
    stops = stops[bounds.at_ns[stops + 1] - bounds.at_ns[stops] >= MIN_STOP_NS]
    if not len(stops):
        return SPANS.empty()
    is_call = of_kinds(trace.events["kind"], CALLS)[bounds.owner]
    is_open = np.cumsum(np.where(is_call, np.where(bounds.begins, 1, -1), 0))
    silent = stops[is_open[stops] == 0]
    start, end = bounds.at_ns[silent], bounds.at_ns[silent + 1]
    named = intervals.overlap(intervals.union(*spans.bounds), start, end) > 0
    return SPANS.table({"start_ns": start[~named], "end_ns": end[~named]})
