"""Idle time that begins with a blocking call and outlasts the call's own effect.

The ledger books to a blocking call what refilling the queue explains, at most its own length; hosts that use the value
or launch slowly take longer. Without the call the host would do that beside the device's work. Only the replay can tell
how much of it running ahead hides, at most all of it. Code without events may need the value and is not the call's
cost.
"""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.intervals import Intervals

# What most blocking calls wait for, a copy of a few bytes to the host, takes a device 1 to 3 us and ends no stretch.
JOINED_NS = 10_000
# Silences after a call, as multiples of it: 1.1 to 1.7 where generated hosts refill their queue, 4 and more where a
# recorded script works on what it read (2026-11-24).
FAR_LONGER = 2.0


def unrecorded_code(facts: RankFacts) -> Intervals:
    """Silences of a rank's host far longer than the last blocking call before them; sorted, disjoint."""
    begin, end = facts.silences.bounds
    calls = facts.spans_of("host_sync")
    last = np.searchsorted(np.sort(calls["end_ns"]), begin, side="right") - 1
    waited = (calls["end_ns"] - calls["start_ns"])[np.argsort(calls["end_ns"], kind="stable")]
    is_far = end - begin > FAR_LONGER * np.append(waited, 0)[last]
    return begin[is_far], end[is_far]


def idle_from_calls_us(facts: RankFacts) -> float:
    """Idle time per step, us, after blocking calls: their own and that of late launches after them."""
    waiting, issuing = facts.gaps_of("host_sync"), facts.gaps_of("host_launch")
    if not len(waiting):
        return 0.0
    idle = facts.gaps.take(facts.gaps["end_ns"] > facts.gaps["start_ns"])
    begins = np.ones(len(idle), bool)
    begins[1:] = idle["start_ns"][1:] - np.maximum.accumulate(idle["end_ns"])[:-1] > JOINED_NS
    stretch = idle["start_ns"][begins]
    # Where the last blocking call before a piece left the device idle, and whether that was in the same stretch.
    left_ns = np.sort(waiting["start_ns"])
    start, end = intervals.subtract(intervals.union(*issuing.bounds), unrecorded_code(facts))
    before = np.searchsorted(left_ns, start, side="right") - 1
    since = stretch[np.maximum(np.searchsorted(stretch, start, side="right") - 1, 0)]
    follows = (before >= 0) & (left_ns[np.maximum(before, 0)] >= since)
    every = intervals.merge(intervals.union(*waiting.bounds), (start[follows], end[follows]))
    return facts.per_step_us(every)
