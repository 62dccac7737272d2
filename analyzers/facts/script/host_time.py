"""Time in which the training thread runs Python or nothing, waits, or evaluates, with a device or on a CPU rank."""

from __future__ import annotations

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import is_evaluation
from ddprof.intervals import Intervals


def computes(facts: RankFacts) -> bool:
    """True where the training thread itself computes (a CPU rank), so that all of its time is step time."""
    return not facts.is_device_rank


def between_operators(facts: RankFacts) -> Intervals:
    """Idle time of a CPU rank between its operators; empty for a rank with a device."""
    return intervals.EMPTY if facts.is_device_rank else facts.gaps_of("host_launch").bounds


def blocked(facts: RankFacts) -> Intervals:
    """Intervals in which the training thread waits for the device or, on a CPU rank, for its peers."""
    calls = intervals.union(*facts.spans_of("host_sync").bounds)
    return calls if facts.is_device_rank else intervals.merge(calls, intervals.union(*facts.exposed.bounds))


def evaluating(facts: RankFacts) -> Intervals:
    """Intervals in which a model is in evaluation mode, as captured."""
    spans = facts.spans_of("checkpoint")
    return intervals.union(*spans.bounds_of(is_evaluation(facts.strings)[spans["name"]]))
