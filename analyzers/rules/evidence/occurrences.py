"""Frequency of costs that only some steps have, whose mean per step is the time of no actual step."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Evidence
from ddprof.units import format_us


class Occurrences(Struct, frozen=True):
    """Recorded steps of a rank in which host spans of a cause begin, and the time they take in such a step."""

    rank: int
    steps: int
    recorded: int
    each_us: float

    @property
    def is_once(self) -> bool:
        """True where the cost is in one of several steps, so that its price assumes an unseen frequency."""
        return self.steps == 1 and self.recorded > 1

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Evidence on the frequency; empty where every step or none has the cost."""
        if self.steps in (0, self.recorded):
            return ()
        text = f"in {self.steps} of {self.recorded} steps, {format_us(self.each_us)} each time"
        if self.is_once:
            text = f"once in {self.recorded} steps, {format_us(self.each_us)}; how often it recurs is unknown"
        return (Evidence(text, self.rank),)


def occurrences(measures: Measures, position: int, cause: str) -> Occurrences:
    """Frequency of a cause's host spans on a rank."""
    facts = measures.job.ranks[position]
    start, end = intervals.union(*facts.spans_of(cause).bounds)
    inside = facts.is_issued_in_steps(start)
    start, end = start[inside], end[inside]
    steps = len(np.unique(np.searchsorted(facts.steps["mark_ns"], start, side="right")))
    # Several spans of one occurrence (a state is gathered, then written) count as one.
    each_us = float((end - start).sum()) / max(1, steps) / 1e3
    return Occurrences(measures.job.rank_ids[position], steps, len(facts.steps), each_us)
