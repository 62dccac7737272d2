"""Pauses of hosts that nothing recorded names: once in a step, on another rank each time.

Python collects garbage when enough objects were made, on each rank at a moment of its own, and a trace has no event for
it. What such a pause is cannot be seen; that it is one stop in a step, comes in few steps and wanders over the ranks
tells it from a slow host (one rank), a starved one (many stops in every step) and a line of the script (every step).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.stepping.start_up import WORTH_SAYING
from ddprof.analyzers.job.device_idle import starved
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.script.idle import MIN_TIMES, script_times
from ddprof.analyzers.job.waiting.lateness import chance_of_most
from ddprof.derived_once import remembered
from ddprof.significance import MAX_CHANCE
from ddprof.tables import Array

FEWEST = 3  # pauses, and steps: two may coincide
MOSTLY = 0.7  # of a step's stops, in the longest of them; of all stops, in such pauses
RARE = 0.75  # of the steps of any rank have stops of that length: a part of the step is in all of them


class PausesInTurn(Struct, frozen=True):
    """Pauses by rank and step: `longest_ns`, shape (ranks, steps), 0 where a rank has none; what they cost, us per
    step, where the ranks wait for the longest in each."""

    longest_ns: Array
    cost_us: float

    @property
    def count(self) -> int:
        """Number of pauses."""
        return int((self.longest_ns > 0).sum())

    @property
    def ranks(self) -> int:
        """Number of ranks that have any."""
        return int((self.longest_ns > 0).any(axis=1).sum())


@remembered
def pauses_in_turn(job: JobFacts) -> PausesInTurn | None:
    """The pauses of the job, None where its stops are no such pauses or cost little."""
    steps = min(len(facts.steps) for facts in job.ranks)
    if len(job.ranks) < 2 or steps < FEWEST:
        return None
    shape = len(job.ranks), steps
    longest, total = np.zeros(shape), np.zeros(shape)
    for position, (facts, script) in enumerate(zip(job.ranks, script_times(job.ranks), strict=True)):
        stopped = starved(facts)
        stops = intervals.merge(stopped.stalled, stopped.held)
        usual_ns = np.median(intervals.overlap(script.every, *facts.steps.bounds))
        if usual_ns >= WORTH_SAYING * job.step_ns:  # in most steps
            stops = intervals.subtract(stops, script.idle)
        at = intervals.row_at(facts.steps.bounds, stops[0])
        inside = (at >= 0) & (at < steps)
        lengths = (stops[1] - stops[0])[inside]
        np.maximum.at(longest[position], at[inside], lengths)
        np.add.at(total[position], at[inside], lengths)
    is_pause = (longest >= WORTH_SAYING * job.step_ns) & (longest >= MOSTLY * total)
    count, of_rank = int(is_pause.sum()), is_pause.sum(axis=1)
    cost_ns = float(np.where(is_pause, longest, 0.0).max(axis=0).mean())
    wander = (of_rank > 0).sum() > 1 and chance_of_most(int(of_rank.max()), count, shape[0]) >= MAX_CHANCE
    is_rare = (total >= WORTH_SAYING * job.step_ns).mean(axis=1).max() <= RARE
    is_again = count >= FEWEST and is_pause.any(axis=0).sum() >= MIN_TIMES
    if not is_again or not is_rare or not wander or cost_ns < WORTH_SAYING * job.step_ns:
        return None
    if longest[is_pause].sum() < MOSTLY * total.sum():
        return None
    return PausesInTurn(np.where(is_pause, longest, 0.0), cost_ns / 1e3)
