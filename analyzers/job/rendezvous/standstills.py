"""Standstills of a rank without a recorded reason, in which it may have waited for another rank, and what follows each.

A rank stands still where its device idles and either its host does nothing that is recorded (a barrier over sockets, a
store, objects that are gathered), or the operation that ends the idle stretch had long been launched (a collective that
was filtered out of the trace). What comes next is the place: other ranks that meet there do the same next.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.gaps import MAX_LAUNCH_LATENCY_NS
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.stops import MIN_STOP_NS
from ddprof.analyzers.facts.work import knows_launches
from ddprof.causes import CAUSE_CODE
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array

Places = dict[str, int]  # numbers of places by name, one numbering for all ranks
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Events:
    """Events of a rank that other ranks have too, by place, then time. Times in ns on the rank's own clock."""

    place: Array
    at_ns: Array
    launch_ns: Array  # of a device operation; NULL where unknown, and for what the host does

    def of(self, place: int) -> slice:
        """The events at a place."""
        return slice(*np.searchsorted(self.place, (place, place + 1)).tolist())

    def nearest(self, place: int, at_ns: int) -> int | None:
        """Row of the event at a place that is nearest to an instant; None where there is none."""
        here = self.of(place)
        if here.start == here.stop:
            return None
        at = int(np.searchsorted(self.at_ns[here], at_ns)) + int(here.start)
        near = [row for row in (at - 1, at) if here.start <= row < here.stop]
        return int(min(near, key=lambda row: abs(int(self.at_ns[row]) - at_ns)))

    def apart_ns(self, row: int) -> int:
        """Distance from an event to the nearest other one at the same place."""
        here = self.of(int(self.place[row]))
        near = [abs(int(self.at_ns[row] - self.at_ns[at])) for at in (row - 1, row + 1) if here.start <= at < here.stop]
        return min(near, default=np.iinfo(np.int64).max)


class Standstills(Struct, frozen=True):
    """The standstills of one rank, own clock, ns; shape (standstills,) unless stated."""

    arrived_ns: Array  # the rank stands still from here
    resumed_ns: Array  # to here
    idle_ns: Array  # of that its device idles
    event: Array  # row of `events`: what it does next
    on_host: Array  # bool: its host stands still, else an operation that is launched does not start
    events: Events
    ended_ns: Array  # (ends,), sorted: when something that the rank did ended
    busy: Intervals  # when its device runs anything

    def at(self, event: int) -> int | None:
        """The standstill before an event; None where the rank did not stand still."""
        rows = np.flatnonzero(self.event == event)
        return int(rows[0]) if len(rows) else None

    def idle_around(self, at_ns: int) -> int | None:
        """Start of the device's idle time around an instant; None where it ran something then, or before anything."""
        row = int(np.searchsorted(self.busy[0], at_ns, side="right")) - 1
        return int(self.busy[1][row]) if row >= 0 and self.busy[1][row] <= at_ns else None

    def last_end_ns(self, at_ns: int) -> int:
        """Last recorded activity of the rank before an instant; the instant itself where there is none."""
        row = int(np.searchsorted(self.ended_ns, at_ns, side="right")) - 1
        return int(self.ended_ns[row]) if row >= 0 else at_ns


class Stretches(Struct, frozen=True):
    """Stretches without activity of the host, or of the device although its next operation was launched."""

    busy: Intervals
    idle: Intervals
    silent: Intervals
    held: Intervals

    def longest_ns(self) -> int:
        """The longest idle time in one stretch."""
        start, end = (np.concatenate(part) for part in zip(self.silent, self.held, strict=True))
        return int(intervals.overlap(self.idle, start, end).max(initial=0))


def stretches(facts: RankFacts) -> Stretches:
    """Stretches of a device rank inside its steps."""
    busy = intervals.union(*facts.device_ops.bounds)
    idle = intervals.union(*facts.gaps.bounds_of(facts.gaps["cause"] != CAUSE_CODE["memcpy"]))
    silent = intervals.EMPTY
    if knows_launches(facts):
        silent = facts.silences.bounds_of(facts.is_issued_in_steps(facts.silences["start_ns"]))
    return Stretches(busy, idle, silent, _held(facts, idle, busy))


def find_standstills(facts: RankFacts, still: Stretches, places: Places) -> Standstills:
    """Standstills of MIN_STOP_NS and more inside the steps of a rank on a device."""
    ops, silent, held = facts.device_ops, still.silent, still.held
    calls, ended = Events(*(np.empty(0, np.int64) for _ in range(3))), still.busy[1]
    if knows_launches(facts):
        calls = _calls(facts, places)
        ended = np.concatenate((facts.host_spans["end_ns"], facts.phases["end_ns"], ops["launch_end_ns"]))
    starts = Events(_numbered("start ", facts, ops["name"], places), ops["start_ns"], ops["launch_ns"])
    columns = [np.concatenate(both) for both in zip(vars(calls).values(), vars(starts).values(), strict=True)]
    next_start = _following(starts, held[1])
    start, end = map(np.concatenate, zip(silent, held, strict=True))
    event = np.append(_following(calls, silent[1]), np.where(next_start >= 0, next_start + len(calls.place), -1))
    order = np.lexsort((columns[1], columns[0]))
    row_of = np.argsort(order)
    idle_ns = intervals.overlap(still.idle, start, end)
    keep = (idle_ns >= MIN_STOP_NS) & (event >= 0)
    return Standstills(
        arrived_ns=start[keep],
        resumed_ns=end[keep],
        idle_ns=idle_ns[keep],
        event=row_of[event[keep]],
        on_host=event[keep] < len(calls.place),
        events=Events(*(column[order] for column in columns)),
        ended_ns=np.sort(ended[ended != NULL]),
        busy=still.busy,
    )


def _held(facts: RankFacts, idle: Intervals, busy: Intervals) -> Intervals:
    """Idle stretches that end with an operation launched long before, each from the time it could have run.

    Without launch calls in the trace: all idle stretches between two operations.
    """
    ops, is_known = facts.device_ops, knows_launches(facts)
    if not len(busy[1]):
        return intervals.EMPTY
    if is_known:  # others cannot have been held for longer than a launch takes
        is_long = idle[1] - idle[0] > MAX_LAUNCH_LATENCY_NS
        idle = idle[0][is_long], idle[1][is_long]
    order = np.argsort(ops["start_ns"], kind="stable")
    row = order[np.minimum(np.searchsorted(ops["start_ns"], idle[1], sorter=order), len(order) - 1)]
    after = np.minimum(np.searchsorted(busy[1], idle[0]), len(busy[1]) - 1)  # the stretch of work that idle follows
    ends_here = (ops["start_ns"][row] == idle[1]) & (busy[1][after] == idle[0])
    start, end = idle[0][ends_here], idle[1][ends_here]
    if not is_known:
        return start, end
    launched = ops["launch_end_ns"][row[ends_here]]
    is_held = (launched != NULL) & (end - np.maximum(start, launched) > MAX_LAUNCH_LATENCY_NS)
    return np.maximum(start, launched)[is_held], end[is_held]


def _following(events: Events, at_ns: Array) -> Array:
    """Row of the first event at or after each instant; -1 after the last."""
    order = np.argsort(events.at_ns, kind="stable")
    return np.append(order, -1)[np.searchsorted(events.at_ns[order], at_ns)]


def _calls(facts: RankFacts, places: Places) -> Events:
    """Host events of a rank: step marks, spans, phases and launches."""
    spans, phases, ops = facts.host_spans, facts.phases, facts.device_ops
    launches = ops.take(ops["launch_ns"] != NULL)
    marks = np.append(facts.steps["mark_ns"], facts.steps["mark_end_ns"][-1:])
    marks = marks[:0] if facts.step_source == "inferred" else marks
    place = (
        np.full(len(marks), places.setdefault("mark", len(places))),
        _numbered("span ", facts, spans["name"], places),
        _numbered("phase ", facts, phases["name"], places),
        _numbered("launch ", facts, launches["name"], places),
    )
    at_ns = np.concatenate((marks, spans["start_ns"], phases["start_ns"], launches["launch_ns"]))
    return Events(np.concatenate(place), at_ns, np.full(len(at_ns), NULL))


def _numbered(prefix: str, facts: RankFacts, names: Array, places: Places) -> Array:
    """Place numbers of some names (string indices), ignoring digits in names, which count steps."""
    distinct, which = np.unique(names, return_inverse=True)
    texts = [prefix + _NUMBER.sub("#", facts.strings[name]) for name in distinct.tolist()]
    return np.array([places.setdefault(name, len(places)) for name in texts], np.int64)[which]
