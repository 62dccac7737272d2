"""Reasons why devices starve: nothing launched is left to run, or a blocking call came before.

The recording itself separates three. Many gaps of about the host's usual launch interval are the cost of launching. A
call that took far longer than usual is a stall. Anything else that held the host for long is its program: Python
between the phases, data preparation.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.derived_once import remembered
from ddprof.intervals import Intervals
from ddprof.tables import NULL

# Between two launches a host runs an operator, or the head of a module, a hook or an optimizer: the time of some tens
# of launches at most. Longer than this many launches it does something else than launching.
MOST_LAUNCHES = 32
# An eager operator costs its host 5 to 20 us, and some hundred us while the profiler records Python stacks. A program
# that launches more rarely than this does something else in between.
DEAREST_LAUNCH_NS = 1_000_000


class Starved(Struct, frozen=True):
    """Idle time of one device before launches still to come, by reason; disjoint, own clock.

    `interval_ns`: the rank's usual time between two launches; 0 with fewer than two.
    """

    launching: Intervals
    stalled: Intervals
    held: Intervals
    interval_ns: int


@remembered
def starved(facts: RankFacts) -> Starved:
    """Parts of the host_launch gaps before the launch of the operation that ends each, by reason."""
    gaps, ops = facts.gaps_of("host_launch"), facts.device_ops
    gaps = gaps.take(gaps["next_op"] != NULL)
    interval_ns = launch_interval_ns(facts)
    if not len(gaps) or not len(ops):
        return Starved(intervals.EMPTY, intervals.EMPTY, intervals.EMPTY, interval_ns)
    launched, start = ops["launch_end_ns"][gaps["next_op"]], gaps["start_ns"]
    end = np.where(launched == NULL, start, np.minimum(gaps["end_ns"], launched))
    idle = intervals.union(start, end)
    stops = facts.stalls.take(facts.stalls["drains"])
    stalled = intervals.intersect(idle, intervals.union(*stops.bounds))
    left = intervals.subtract(idle, stalled)
    is_long = left[1] - left[0] > MOST_LAUNCHES * min(interval_ns, DEAREST_LAUNCH_NS)
    return Starved((left[0][~is_long], left[1][~is_long]), stalled, (left[0][is_long], left[1][is_long]), interval_ns)


def launch_interval_ns(facts: RankFacts) -> int:
    """Median time between successive launches of a rank, ns; 0 with fewer than two. The kernels of a graph count as
    one.
    """
    launch = facts.device_ops["launch_ns"]
    apart_ns = np.diff(np.sort(launch[launch != NULL]))
    apart_ns = apart_ns[apart_ns > 0]
    return int(np.median(apart_ns)) if len(apart_ns) else 0


# Idle time that begins with a blocking call and outlasts the call's own effect.
#
# The ledger books to a blocking call what refilling the queue explains, at most its own length; hosts that use the
# value or launch slowly take longer. Without the call the host would do that beside the device's work. Only the replay
# can tell how much of it running ahead hides, at most all of it. Code without events may need the value and is not the
# call's cost.

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
