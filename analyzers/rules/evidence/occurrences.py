"""How often a cost occurs that not every step has: per step it is a mean, and the mean is the time of no step."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Evidence
from ddprof.units import format_us


def occurrences(measures: Measures, position: int, cause: str) -> list[Evidence]:
    """In how many steps of a rank the host spans of a cause begin, and how long one takes; [] if in every step."""
    facts = measures.job.ranks[position]
    start, end = intervals.union(*facts.spans_of(cause).bounds)
    inside = facts.is_issued_in_steps(start)
    start, end = start[inside], end[inside]
    steps = len(np.unique(np.searchsorted(facts.steps["mark_ns"], start, side="right")))
    if not steps or steps == len(facts.steps):
        return []
    # Several spans of one occurrence (a state is gathered, then written) count as one.
    each = float((end - start).sum()) / steps / 1e3
    text = f"in {steps} of {len(facts.steps)} steps, {format_us(each)} each time"
    return [Evidence(text, measures.job.rank_ids[position])]
