"""Occasional extra time of ranks beyond their quiet steps, by the timers of all steps, as traced steps may miss it.

Outside its backward passes and its loader a rank waits for nobody, as a rule, and all wait for the longest rank in a
step. Collections, checkpoints and evaluations have their own rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.tree import call_tree
from ddprof.analyzers.job.whole_run.cpu_waits import run_shares, waited_share
from ddprof.analyzers.job.whole_run.own_times import (
    called_ns,
    lacked_cpu_is_counted,
    meets_elsewhere,
    meets_in_calls,
    time_beside,
)
from ddprof.analyzers.job.whole_run.unprofiled_steps import MIN_STEPS, common_steps, pauses_in, unprofiled_steps
from ddprof.averages import typical
from ddprof.sidecar import StepTimes
from ddprof.significance import MAX_CHANCE, binomial_tail, change_point
from ddprof.tables import Array

QUIET, QUICKEST = 0.25, 0.05  # quantiles of the steps; what begins after the traced steps may be in nearly all others
NEARLY_ALL = 0.9  # of the steps: the machine quickens some
FAR = 4.0  # times the distance between these, one standard deviation where chance alone scatters
# Of ranks that alternate beyond chance, which is tested. While one waits for a CPU another has it: they alternate, too.
FAR_IN_TURN = 3.0


@dataclass(frozen=True)
class NowAndThen:
    """Shares of the mean step: of each rank what it takes beyond its quiet steps, shape (ranks,), and the `cost`, what
    all wait for whoever is longest, less what one rank has beyond the typical one: that rank is late by it. `most`: the
    cost if no wait for a CPU is in it. `usual`: what the typical rank's quiet steps take. `often`: in how many of so
    many `steps`; `since`: number of the step from which on in nearly all; `in_turn`: one rank at a time, beyond chance.
    """

    times: Array
    cost: float
    most: float
    usual: float
    often: int
    steps: int
    in_turn: bool
    since: int | None


def now_and_then(ranks: Sequence[RankFacts], in_forward: bool) -> NowAndThen | None:
    """Occasional time of the ranks; None where too few steps were timed, or ranks also meet outside backward passes, or
    were without a CPU for longer, which falls anywhere, and not on one rank at a time. `in_forward`: count forward
    time, which grows with the batch.
    """
    if not ranks or any(map(meets_elsewhere, ranks)):
        return None
    outside = common_steps(ranks)
    traced = [[step for step in facts.sidecar.steps if step.profiled] for facts in ranks]
    if len(outside[0]) < MIN_STEPS or not all(traced):
        return None
    # An optimizer that runs the passes (a closure) has what the script does between them, and an update of its own.
    whole = (False, True) if any(call_tree(facts).in_closure.any() for facts in ranks) else (False,)
    ways = [_beyond_quiet(ranks, outside, traced, in_forward, with_optimizer) for with_optimizer in whole]
    return max((one for one in ways if one is not None), key=lambda one: one.cost, default=None)


def _beyond_quiet(
    ranks: Sequence[RankFacts],
    outside: Sequence[Sequence[StepTimes]],
    traced: Sequence[Sequence[StepTimes]],
    in_forward: bool,
    with_optimizer: bool,
) -> NowAndThen | None:
    """Time of the steps `outside` the trace beyond their quiet ones, steps rank by rank."""
    beyond, inside = (
        [_own_ns(facts, each, in_forward, with_optimizer) for facts, each in zip(ranks, steps, strict=True)]
        for steps in (outside, traced)
    )
    quickest, quiet = np.array([_quantiles(each) for each in beyond]).T
    quiet = np.fmin(quiet, [_mean(each) for each in inside])
    excess, is_counted = np.array(beyond) - quiet[:, None], lacked_cpu_is_counted(ranks)
    for far in (FAR_IN_TURN, FAR) if is_counted else (FAR,):
        is_long = (excess > 0) & (excess >= far * (quiet - quickest)[:, None])  # NaN, where a timer is unknown, is not
        if in_turn := _is_in_turn(is_long):
            break
    step_ns = float(np.mean([step.length_ns or 0 for facts in ranks for step in unprofiled_steps(facts)]))
    more = np.where(is_long, excess, 0.0) / step_ns
    longest, times = more.max(axis=0), more.mean(axis=1)
    often = int((longest > 0).sum())
    if longest.mean() < (waited_share(ranks) or 0.0) and not (in_turn or is_counted):
        return None
    of_one = 0.0 if in_turn else float(times.max()) - typical(times)
    # A wait for a CPU falls anywhere in what a rank runs, and one rank waits when another does not.
    stretch = np.nan_to_num(run_shares(ranks).stretch) * (not is_counted)
    without_cpu = np.nan_to_num([_mean(each) / step_ns for each in beyond]) * stretch / (1 + stretch)
    own = float(np.maximum(0.0, times - without_cpu).sum() / (times.sum() or 1.0))
    most = float(longest.mean()) - of_one
    numbers = [step.index for step in outside[0]]
    usual = float(np.nan_to_num(typical(quiet / step_ns)))
    return NowAndThen(times, own * most, most, usual, often, len(numbers), in_turn, _since(longest > 0, numbers))


def _since(is_long: Array, numbers: Sequence[int | None]) -> int | None:
    """Number of the first long step, where it is not the first of all and nearly all after it are long; else None."""
    first = int(np.argmax(is_long))
    return numbers[first] if first and is_long[first:].mean() >= NEARLY_ALL else None


def _quantiles(times_ns: Array) -> Array:
    """The QUICKEST and QUIET quantiles of the known times, or QUICKEST and median before they grow; NaN for none."""
    known = times_ns[np.isfinite(times_ns)]
    grows = change_point(known)
    if grows is not None and known[:grows].mean() < known[grows:].mean():
        return np.quantile(known[:grows], (QUICKEST, 0.5))
    return np.quantile(known, (QUICKEST, QUIET)) if len(known) else np.full(2, np.nan)


def _mean(times_ns: Array) -> float:
    known = times_ns[np.isfinite(times_ns)]
    return float(known.mean()) if len(known) else np.nan


def _is_in_turn(is_long: Array) -> bool:
    """True where one rank alone is long in far more steps than if each were at moments of its own (ranks, steps)."""
    share = is_long.mean(axis=1)
    if np.count_nonzero(share) < 2:
        return False
    by_chance = float(sum(p * np.prod(1 - np.delete(share, rank)) for rank, p in enumerate(share)))
    return binomial_tail(int((is_long.sum(axis=0) == 1).sum()), is_long.shape[1], by_chance) < MAX_CHANCE


def _own_ns(facts: RankFacts, steps: Sequence[StepTimes], in_forward: bool, with_optimizer: bool) -> Array:
    """Time that a rank takes of each step beside its loader, passes, optimizer, called collectives and recorded pauses
    (`time_beside`). With passes and optimizer where it communicates in calls alone, which are in its passes too: what
    is left of these is not known."""
    sidecar = facts.sidecar
    paused = pauses_in((*sidecar.gc, *sidecar.checkpoints, *sidecar.evaluations))
    is_apart = {"data": True, "backward": True, "forward": not in_forward, "optimizer": not with_optimizer}
    phases = ("data",) if meets_in_calls(facts) else [phase for phase, apart in is_apart.items() if apart]
    return time_beside(steps, phases, called_ns(facts, steps, phases) + [paused(step) or 0 for step in steps])
