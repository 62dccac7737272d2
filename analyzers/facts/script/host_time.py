"""Time of the training thread in which it runs Python, or nothing: on a rank with a device and on a CPU rank."""

from __future__ import annotations

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.intervals import Intervals


def computes(facts: RankFacts) -> bool:
    """True where the training thread computes itself, as that of a CPU rank: all that it does takes time of the
    step."""
    return not facts.is_device_rank


def between_operators(facts: RankFacts) -> Intervals:
    """Idle time of a CPU rank, between its operators; empty for a rank whose device idles for want of launches."""
    return intervals.EMPTY if facts.is_device_rank else facts.gaps_of("host_launch").bounds


def blocked(facts: RankFacts) -> Intervals:
    """When the training thread waits: for the device, or on a CPU rank for its peers."""
    calls = intervals.union(*facts.spans_of("host_sync").bounds)
    return calls if facts.is_device_rank else intervals.merge(calls, intervals.union(*facts.exposed.bounds))
