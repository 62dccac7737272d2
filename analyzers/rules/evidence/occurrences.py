"""How often a cost occurs that not every step has: per step it is a mean, and the mean is the time of no step."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Evidence
from ddprof.units import format_us


def occurrences(measures: Measures, position: int, cause: str) -> list[Evidence]:
    """In how many steps of a rank the host spans of a cause begin, and how long one takes; [] if in every step."""
    steps, each_us = _occurring(measures, position, cause)
    recorded = len(measures.job.ranks[position].steps)
    if not steps or steps == recorded:
        return []
    text = f"in {steps} of {recorded} steps, {format_us(each_us)} each time"
    if steps == 1:
        text = f"once in {recorded} steps, {format_us(each_us)}; how often it comes again was not recorded"
    return [Evidence(text, measures.job.rank_ids[position])]


def is_recorded_once(measures: Measures, position: int, cause: str) -> bool:
    """Whether the host spans of a cause begin in one of several steps of a rank: its price per step assumes that it
    comes again as often."""
    return len(measures.job.ranks[position].steps) > 1 and _occurring(measures, position, cause)[0] == 1


def _occurring(measures: Measures, position: int, cause: str) -> tuple[int, float]:
    """Steps of the rank in which spans of the cause begin, and their time in one of these, us."""
    facts = measures.job.ranks[position]
    start, end = intervals.union(*facts.spans_of(cause).bounds)
    inside = facts.is_issued_in_steps(start)
    start, end = start[inside], end[inside]
    steps = len(np.unique(np.searchsorted(facts.steps["mark_ns"], start, side="right")))
    # Several spans of one occurrence (a state is gathered, then written) count as one.
    return steps, float((end - start).sum()) / max(1, steps) / 1e3
