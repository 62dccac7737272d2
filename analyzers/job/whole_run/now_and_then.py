"""Occasional extra time of ranks beyond their quiet steps, by the timers of all steps, as traced steps may miss it.

Outside its backward passes and its loader a rank waits for nobody, as a rule, and all wait for the longest rank in a
step. Collections, checkpoints and evaluations have their own rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.whole_run.own_times import meets_elsewhere
from ddprof.analyzers.job.whole_run.unprofiled_steps import MIN_STEPS, pauses_in, unprofiled_steps
from ddprof.sidecar import StepTimes
from ddprof.tables import Array

QUIET, QUICKEST = 0.25, 0.05  # quantiles of the steps; what begins after the traced steps may be in nearly all others
FAR = 4.0  # times the distance between these, one standard deviation where chance alone scatters


@dataclass(frozen=True)
class NowAndThen:
    """Shares of the mean step: each rank's time beyond its quiet steps, shape (ranks,), and the wait of all for the
    longest rank. `often`: steps with such time, out of `steps`.
    """

    times: Array
    cost: float
    often: int
    steps: int


def now_and_then(ranks: Sequence[RankFacts], in_forward: bool) -> NowAndThen | None:
    """Occasional time of the ranks; None where too few steps were timed, or ranks also meet outside backward passes.
    `in_forward`: count forward time, which also grows with the batch.
    """
    timed = [{step.index: step for step in unprofiled_steps(facts) if step.index is not None} for facts in ranks]
    if not ranks or any(map(meets_elsewhere, ranks)):
        return None
    numbers = sorted(set.intersection(*(set(own) for own in timed)))
    traced = [[step for step in facts.sidecar.steps if step.profiled] for facts in ranks]
    if len(numbers) < MIN_STEPS or not all(traced):
        return None
    outside = [[each[number] for number in numbers] for each in timed]
    own = [_own_ns(facts, each, in_forward) for facts, each in zip(ranks, outside, strict=True)]
    inside = [_own_ns(facts, each, in_forward) for facts, each in zip(ranks, traced, strict=True)]
    quickest, quiet = np.quantile(own, (QUICKEST, QUIET), axis=1)
    quiet = np.minimum(quiet, [each.mean() for each in inside])
    more = np.array(own) - quiet[:, None]
    more[~(more >= FAR * (quiet - quickest)[:, None])] = 0.0  # NaN, where a timer is unknown, too
    more /= np.mean([step.length_ns for each in timed for step in each.values()])
    longest = more.max(axis=0)
    return NowAndThen(more.mean(axis=1), float(longest.mean()), int((longest > 0).sum()), len(numbers))


def _own_ns(facts: RankFacts, steps: Sequence[StepTimes], in_forward: bool) -> Array:
    """Time of each step outside loader, passes, optimizer and recorded pauses; NaN where timers lack it."""
    sidecar = facts.sidecar
    paused = pauses_in((*sidecar.gc, *sidecar.checkpoints, *sidecar.evaluations))
    parts = [(s.length_ns, s.data_ns or 0, paused(s), s.forward_ns, s.backward_ns, s.optimizer_ns or 0) for s in steps]
    known = np.array([[np.nan if part is None else part for part in each] for each in parts], float).T
    rest, forward, passes = known[0] - known[1] - known[2], known[3], known[3] + known[4]
    # An optimizer may run the passes itself (a closure): they are in its time then.
    within = np.where(passes + known[5] <= rest, passes + known[5], np.maximum(passes, known[5]))
    return np.asarray(rest - within + in_forward * forward)
