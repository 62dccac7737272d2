"""Cost of barriers and collectives of Python objects on a rank."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.barriers import is_meeting
from ddprof.analyzers.facts.work import compute_work
from ddprof.intervals import Intervals


def meeting_spans(facts: RankFacts) -> Intervals:
    """Time from each call that makes ranks meet to the end of its communication, on the rank's clock."""
    comms = facts.comms.take(is_meeting(facts))
    calls = intervals.union(*facts.meetings.bounds)
    return intervals.merge(calls, intervals.union(comms["start_ns"], comms["end_ns"]))


def held_in_meetings_us(facts: RankFacts) -> float:
    """Time from a meeting until the rank computes again, us per step; includes refilling its queue."""
    spans = meeting_spans(facts)
    if not len(spans[0]):
        return 0.0
    start, end = intervals.subtract(intervals.union(*facts.steps.bounds), compute_work(facts))
    first = np.minimum(np.searchsorted(spans[1], start, side="right"), len(spans[0]) - 1)
    begins = np.maximum(start, spans[0][first])
    held = (spans[1][first] > start) & (begins < end)
    return float((end - begins)[held].sum()) / 1e3 / len(facts.steps)
