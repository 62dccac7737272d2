"""Time of each rank outside backward passes over the whole run, where it waits for nobody, as a rule: others wait for a
rank that takes longer there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.script.host_time import computes
from ddprof.analyzers.job.whole_run.cpu_waits import run_shares
from ddprof.analyzers.job.whole_run.unprofiled_steps import MIN_STEPS, unprofiled_steps
from ddprof.sidecar import StepTimes
from ddprof.tables import Array

LEAST_SHARE = 0.1  # of a step: ranks of healthy jobs on a busy machine of two cores differed by up to that
SURE = 4.0  # standard errors: chance exceeds them once in 30,000 times, and stops come in groups
# Where a rank was on a CPU for LEAST_SHARE of the run longer than its peers, half of both will do: stops take no CPU
# time. Of 71 healthy jobs none reached 0.09 of it (two busy cores, steps of 4 to 90 ms, 2026-11-26).
AGREEING = 0.5


def own_ns(facts: RankFacts, steps: Sequence[StepTimes], beside_loader: bool = False) -> Array:
    """Time of each step outside its backward pass and the collectives that the script calls; steps whose timers do not
    know it are left out. `beside_loader`: without the wait for the batch, whose workers may have had no CPU: rules on
    loaders look at that."""
    in_backward = intervals.contains(facts.phase_time(Phase.BACKWARD), facts.script_calls["start_ns"]).any()
    own = [
        step.length_ns
        - step.backward_ns
        - (0 if in_backward else step.collective_ns)
        - (step.data_ns or 0 if beside_loader else 0)
        for step in steps
        if step.length_ns is not None and step.backward_ns is not None
    ]
    return np.array(own, float)


def late_shares(ranks: Sequence[RankFacts]) -> tuple[Array, Array]:
    """By how much each rank takes longer than the typical one beside its loader, and what it takes, as shares of the
    step; floats, shape (ranks,). The first are 0 where that is little, chance or want of a CPU, both where too few
    steps were timed or ranks wait for one another outside their backward passes, too."""
    own = [own_ns(facts, unprofiled_steps(facts), beside_loader=True) for facts in ranks]
    if len(ranks) < 2 or not all(len(one) >= MIN_STEPS for one in own) or any(map(meets_elsewhere, ranks)):
        return np.zeros(len(ranks)), np.zeros(len(ranks))
    lengths = [step.length_ns for facts in ranks for step in unprofiled_steps(facts) if step.length_ns is not None]
    shares = run_shares(ranks)
    computes_more = np.array([shares.own(position, 0.0) for position in range(len(ranks))])
    strict = np.where(computes_more >= LEAST_SHARE, AGREEING, 1.0)
    averaged = [[f(one) for one in own] for f, _ in _AVERAGES]
    found = [_excess(mean, [g(one) for one in own], strict) for mean, (_, g) in zip(averaged, _AVERAGES, strict=True)]
    late, every = (np.max(each, axis=0) / np.mean(lengths) for each in (found, averaged))
    # What a rank waited for a CPU beyond its peers, for as much as it computed, may be the machine's doing: it must be
    # late by more than that. One that computes more waits more often, and that is its own.
    stretch = np.nan_to_num(shares.stretch)
    chance = np.nan_to_num(shares.on_cpu) * np.maximum(0.0, stretch - averages.typical(stretch))
    return np.where(late - chance >= strict * LEAST_SHARE, late, 0.0), every


def meets_elsewhere(facts: RankFacts) -> bool:
    """True where hosts meet outside the backward passes of most traced steps, and so wait for one another there; not in
    calls of the script, which are timed."""
    begun, ended = (time[facts.is_issued_in_steps(facts.comms["start_ns"])] for time in facts.comms.bounds)
    timed = intervals.merge(intervals.union(*facts.script_calls.bounds), intervals.union(*facts.meetings.bounds))
    outside = ~intervals.contains(facts.phase_time(Phase.BACKWARD), begun)
    outside &= ~(intervals.contains(timed, begun) & intervals.contains(timed, ended))
    return computes(facts) and bool(outside.sum() > len(facts.steps) / 2)


def _excess(average: list[float], error: list[float], strict: Array) -> Array:
    """By how much each is above the typical one, ns; 0 where that may be chance. `strict`: of SURE, how much is asked
    of each."""
    more = np.array(average) - averages.typical(average)
    return np.where(more >= strict * SURE * np.hypot(error, np.median(error)), more, 0.0)


def _scatter(own: Array) -> float:
    """Standard error of a median, from the median absolute deviation: sqrt(pi / 2) times that of a mean."""
    return float(1.2533 * averages.NORMAL_MAD * np.median(np.abs(own - np.median(own))) / len(own) ** 0.5)


# What comes now and then is in the mean alone; what comes in most steps is in the median, whatever stops some of them.
_AVERAGES: tuple[tuple[Callable[[Array], float], Callable[[Array], float]], ...] = (
    (lambda own: float(own.mean()), lambda own: float(own.std(ddof=1)) / len(own) ** 0.5),
    (lambda own: float(np.median(own)), _scatter),
)
