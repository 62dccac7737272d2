"""Reasons why devices starve while nothing launched is left to run.

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

    @property
    def every(self) -> Intervals:
        """All of it, whatever the reason."""
        return intervals.merge(self.launching, self.stalled, self.held)


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
