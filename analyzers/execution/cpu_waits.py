"""Waits of a CPU rank's host for communication: idle time of its threads that lasts until a communication ends.

`Work.wait` leaves no event. On busy cores the end of a communication, stamped by a thread of the backend, and the
thread that waited for it drift apart: either may run first.

`arrived_ns`: for each row of the rank's comms, by when the last member had arrived at the latest, on the rank's clock.
"""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.execution.operations import NEVER
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import issued_ns
from ddprof.intervals import Intervals
from ddprof.tables import Array

# Between the stamped end of a communication and the moment the waiting thread runs again, whichever is first.
WAKE_NS = 300_000  # of a short wait
WAKE_DIVISOR = 50  # 1 / 50 of a long wait
IDLE_ON_DIVISOR = 5  # 1 / 5 of a wait: the most that a host idles on after the communication that it waited for
# The backend's thread releases the waiting thread first and stamps the end afterwards. With four gloo ranks on two busy
# cores it was descheduled in between for 12 ms of a wait of 100 ms (measured 2026-11-22).
LATE_STAMP_DIVISOR = 5  # 1 / 5 of the wait, and only where the wait outlasted the arrival of the last member
MIN_WAIT_NS = 30_000  # shorter idle pieces beside a communication are Python between operators


def host_waits(facts: RankFacts, arrived_ns: Array) -> Intervals:
    """Idle host time beside communication that lasts until one ends, each piece by itself."""
    start, end = intervals.union(*facts.exposed.bounds)
    if not len(start):
        return start, end
    # Threads wake a little after the communication they waited for, and buckets are waited for one by one.
    ends = np.sort(facts.comms["end_ns"])
    at = np.searchsorted(ends, end + _wake_ns(start, end), side="right") - 1
    released = np.where(at >= 0, ends[np.maximum(at, 0)], NEVER)
    woken = (released > start) & (end - released <= np.maximum(WAKE_NS, (end - start) // IDLE_ON_DIVISOR))
    woken |= _late_stamps(facts, start, end, arrived_ns) != NEVER
    waits = woken & (end - start > MIN_WAIT_NS)
    return start[waits], end[waits]


def latest_release_ns(facts: RankFacts, start: Array, end: Array, arrived_ns: Array) -> Array:
    """For each wait the latest stamp that the communication it was for may carry."""
    return np.asarray(np.maximum(end + _wake_ns(start, end), _late_stamps(facts, start, end, arrived_ns)))


def _wake_ns(start: Array, end: Array) -> Array:
    return np.asarray(np.maximum(WAKE_NS, (end - start) // WAKE_DIVISOR))


def _late_stamps(facts: RankFacts, start: Array, end: Array, arrived_ns: Array) -> Array:
    """For each wait the recorded end of its communication, where that was stamped after the wait had ended; else NEVER.

    The communication of a wait is the next one to end, if it was launched before the wait, its last member arrived
    during the wait, and its end was stamped soon after. A wait that ended before the last member arrived was for
    something else.
    """
    comms = facts.comms
    order = np.argsort(comms["end_ns"], kind="stable")
    at = np.searchsorted(comms["end_ns"][order], end, side="right")
    found = np.full(len(end), NEVER)
    some = np.flatnonzero(at < len(order))
    comm = order[at[some]]
    launch, stamp, arrived = issued_ns(comms)[comm], comms["end_ns"][comm], arrived_ns[comm]
    ours = (launch <= start[some]) & (start[some] < arrived) & (arrived <= end[some])
    ours &= stamp - end[some] <= (end - start)[some] // LATE_STAMP_DIVISOR
    found[some[ours]] = stamp[ours]
    return found
