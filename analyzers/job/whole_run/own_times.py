"""Time of each rank outside backward passes over the whole run, where it waits for nobody, as a rule: others wait for a
rank that takes longer there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.work import computes
from ddprof.analyzers.job.whole_run.cpu_waits import run_shares
from ddprof.analyzers.job.whole_run.unprofiled_steps import MIN_STEPS, common_steps
from ddprof.derived_once import remembered
from ddprof.sidecar import StepTimes
from ddprof.significance import MAX_CHANCE, chance_of_mean, chance_of_rhythm
from ddprof.tables import Array, Table

LEAST_SHARE = 0.1  # of a step: ranks of healthy jobs on a busy machine of two cores differed by up to that
LEAST_LOADING = 0.02  # of a step: a loader is not late for less (rules/input_starved.py)
SURE = 4.0  # standard errors of a median: chance exceeds them once in 30,000 times, and stops come in groups
UNLIKELY = 0.001  # chance of a difference of means; of 24 healthy jobs none reached LEAST_SHARE at all (2026-11-26)
# Where a rank was on a CPU for LEAST_SHARE of the run longer than its peers, half of both will do: stops take no CPU
# time. Of 71 healthy jobs none reached 0.09 of it (two busy cores, steps of 4 to 90 ms, 2026-11-26).
AGREEING = 0.5
# Where each step counts what it lacked a CPU for, half of what busy machines make ranks differ by will do: 34 healthy
# jobs at load 9 on two cores differed by 0.000 to 0.042 (2026-11-30).
COUNTED = 0.5
TIMED_BAND = 0.3  # of a rank's lateness by these timers: the range of what it costs


def own_ns(facts: RankFacts, steps: Sequence[StepTimes]) -> Array:
    """Time of each step outside its backward pass, the collectives that the script calls and the wait for its batch,
    whose workers may have had no CPU (rules on loaders look at that); steps whose timers do not know it are left out.
    """
    phases = ("data",) if meets_in_calls(facts) else ("data", "backward")
    times_ns = time_beside(steps, phases, called_ns(facts, steps, phases))
    return times_ns[np.isfinite(times_ns)]


def called_ns(facts: RankFacts, steps: Sequence[StepTimes], without: Sequence[str]) -> Array:
    """Time of each step in calls of torch.distributed `without` those in some phases, by their share in traced steps:
    a sharded optimizer sends parameters in its step."""
    calls = intervals.merge(*(intervals.union(*each.bounds) for each in _calls(facts)))
    in_phases = (facts.phase_time(phase) for phase in Phase if phase.name.lower() in without)
    phases = intervals.merge(intervals.EMPTY, *in_phases)
    inside = intervals.length(intervals.intersect(calls, phases)) / max(1, intervals.length(calls))
    return np.array([step.collective_ns for step in steps]) * (1 - inside)


def _calls(facts: RankFacts) -> tuple[Table, ...]:
    return facts.script_calls, facts.meetings, facts.call_waits


def time_beside(steps: Sequence[StepTimes], phases: Sequence[str], elsewhere_ns: Sequence[float] | Array) -> Array:
    """Time of each step outside some phases and what is `elsewhere_ns` (collectives, pauses), without what the rank
    lacked a CPU for there, as far as that was counted; NaN where the timers do not say. Of what was lacked elsewhere,
    which is not counted apart, the share is as in the rest.
    """

    def part(step: StepTimes, phase: str) -> tuple[int | None, int]:
        spent_ns = getattr(step, f"{phase}_ns")
        is_absent = spent_ns is None and phase in ("data", "optimizer")  # no loader, no optimizer
        return 0 if is_absent else spent_ns, getattr(step, f"{phase}_waited_ns")

    rows = [[(step.length_ns, step.waited_ns or 0), *(part(step, phase) for phase in phases)] for step in steps]
    timers = np.array(rows, float).reshape(len(steps), 1 + len(phases), 2)
    time_ns, waited_ns = (timers[:, 0] - timers[:, 1:].sum(axis=1)).T
    elsewhere = np.array(elsewhere_ns, float)
    return np.asarray(time_ns - elsewhere - waited_ns * (1 - elsewhere / np.maximum(time_ns, 1)))


def lacked_cpu_is_counted(ranks: Sequence[RankFacts]) -> bool:
    """True where the timers of every step say what the rank lacked a CPU for: own times are without it."""
    return all(map(_counts_each_step, ranks))


@remembered
def _counts_each_step(facts: RankFacts) -> bool:
    return all(step.waited_ns is not None for step in facts.sidecar.steps)


def chance_left(ranks: Sequence[RankFacts]) -> float:
    """Share of what chance may make of ranks where nothing counts what each step lacked a CPU for."""
    return COUNTED if lacked_cpu_is_counted(ranks) else 1.0


def _timed_by_all(ranks: Sequence[RankFacts]) -> list[tuple[StepTimes, ...]]:
    """The common steps whose timers know the backward pass of every rank, rank by rank; [] for none."""
    by_step = zip(*common_steps(ranks), strict=True)
    return list(zip(*(steps for steps in by_step if all(step.backward_ns is not None for step in steps)), strict=True))


def late_shares(ranks: Sequence[RankFacts]) -> tuple[Array, Array]:
    """Excess of each rank over the typical one beside its loader, and the time that it takes there, as shares of the
    step; floats, shape (ranks,). The first are 0 where that is little, chance or want of a CPU, both where too few
    steps were timed or hosts wait outside their backward passes, too: for one another, or for a device in any call."""
    none, common = np.zeros(len(ranks)), _timed_by_all(ranks)
    waits_elsewhere = not all(map(computes, ranks)) or any(map(meets_elsewhere, ranks))
    if len(ranks) < 2 or not common or len(common[0]) < MIN_STEPS or waits_elsewhere:
        return none, none
    own = [own_ns(facts, steps) for facts, steps in zip(ranks, common, strict=True)]
    times_ns, shares = np.array(own), run_shares(ranks)
    step_ns = np.mean([step.length_ns for steps in common for step in steps if step.length_ns is not None])
    more_on_cpu = np.nan_to_num(shares.on_cpu - averages.typical(shares.on_cpu))
    computes_more = np.array([shares.own(position, 0.0) for position in range(len(ranks))]) >= LEAST_SHARE
    least_ns = np.where(computes_more, AGREEING, chance_left(ranks)) * LEAST_SHARE * step_ns
    by_means = _excess_of_means(times_ns, least_ns, computes_more, common[0])
    late_ns = np.maximum(by_means, _excess_of_medians(times_ns, computes_more))
    chance_ns = np.zeros(len(ranks))
    if not lacked_cpu_is_counted(ranks):
        # What a rank waited for a CPU may be the machine's doing; a peer that waited as long may have done so while it
        # waited for this rank anyway. One that computes more waits more often, and that is its own: there counts what
        # it waits beyond its peers, for as much.
        waited_ns = np.nan_to_num(shares.waited) * times_ns.mean(axis=1) * ~computes_more
        chance_ns = np.maximum(shares.beyond * step_ns, waited_ns)
    # Most of what a larger batch takes is in the backward pass, where peers wait: the CPU time tells of that.
    more_ns = np.maximum(late_ns, np.where(computes_more, more_on_cpu * step_ns, 0.0))
    late = np.where(late_ns - chance_ns >= least_ns, more_ns, 0.0) / step_ns
    return late, np.maximum(times_ns.mean(axis=1), np.median(times_ns, axis=1)) / step_ns


def late_loading_shares(ranks: Sequence[RankFacts]) -> Array:
    """Excess of each rank's wait for its batches over the typical one's in the whole run, as a share of the step; 0
    where that is little, chance, or too few steps were timed. Floats, shape (ranks,)."""
    common = common_steps(ranks)
    if len(ranks) < 2 or len(common[0]) < MIN_STEPS:
        return np.zeros(len(ranks))
    waits_ns = np.array([[step.data_ns or 0 for step in steps] for steps in common], float)
    step_ns = np.mean([step.length_ns for steps in common for step in steps if step.length_ns is not None])
    least_ns, every = np.full(len(ranks), LEAST_LOADING * step_ns), np.ones(len(ranks), bool)
    return np.asarray(_excess_of_means(waits_ns, least_ns, every, common[0]) / step_ns)


def meets_elsewhere(facts: RankFacts) -> bool:
    """True where hosts meet outside the backward passes of most traced steps, and so wait for one another there; not in
    calls of torch.distributed from Python, which are timed."""
    _, outside_backward = _untimed(facts)
    return computes(facts) and outside_backward > len(facts.steps) / 2


def meets_in_calls(facts: RankFacts) -> bool:
    """True where the rank's communication is all in calls of torch.distributed from Python: FSDP2, or a script that
    reduces its gradients itself. DistributedDataParallel waits in C++, at the end of the backward pass."""
    every, _ = _untimed(facts)
    return computes(facts) and len(facts.script_calls) > 0 and every <= len(facts.steps) / 2


@remembered
def _untimed(facts: RankFacts) -> tuple[int, int]:
    """Communications in steps outside the calls from Python that begin them or wait for them: all, and those that begin
    outside backward passes."""
    in_steps = facts.is_issued_in_steps(facts.comms["start_ns"])
    begun, ended = (time[in_steps] for time in facts.comms.bounds)
    timed = intervals.merge(*(intervals.union(*each.bounds) for each in _calls(facts)))
    is_untimed = ~(intervals.contains(timed, begun) & intervals.contains(timed, ended))
    outside = ~intervals.contains(facts.phase_time(Phase.BACKWARD), begun)
    return int(is_untimed.sum()), int((is_untimed & outside).sum())


def _excess_of_means(times_ns: Array, least_ns: Array, computes_more: Array, steps: Sequence[StepTimes]) -> Array:
    """Excess of each rank's mean over the typical rank's, ns; 0 below `least_ns` (ranks,), and where it may be chance.
    What comes now and then is in the mean alone. `steps`: of one rank, as numbered on all."""
    means, numbers = times_ns.mean(axis=1), np.array([step.index for step in steps])
    usual = int(np.argsort(means, kind="stable")[(len(means) - 1) // 2])
    more = np.where(means - means[usual] >= least_ns, means - means[usual], 0.0)
    for rank in np.flatnonzero(more).tolist():
        excess = times_ns[rank] - times_ns[usual]
        # Every n-th step: what keeps time with a loop and is not in it takes the rank's CPU, which is counted apart.
        is_long = excess >= excess.max() / 2
        rhythm = chance_of_rhythm(numbers[is_long]) if excess[is_long].sum() >= excess.sum() / 2 else 1.0
        if min(rhythm, chance_of_mean(excess)) >= (MAX_CHANCE if computes_more[rank] else UNLIKELY):
            more[rank] = 0.0
    return more


def _excess_of_medians(times_ns: Array, computes_more: Array) -> Array:
    """Excess of each rank's median over the typical rank's, ns; 0 where it may be chance. What comes in most steps is
    in the median, whatever stops some of them."""
    medians, root = np.median(times_ns, axis=1), times_ns.shape[1] ** 0.5
    # Standard error of a median, from the median absolute deviation: sqrt(pi / 2) times that of a mean.
    error = 1.2533 * averages.NORMAL_MAD * np.median(np.abs(times_ns - medians[:, None]), axis=1) / root
    # What comes in about every second step is in the median or not by chance: its bound by order statistics.
    lowest = np.quantile(times_ns, max(0.0, 0.5 - SURE / (2 * root)), axis=1)
    error = np.maximum(error, (medians - lowest) / SURE)
    more = medians - averages.typical(medians)
    strict = np.where(computes_more, AGREEING, 1.0)
    return np.where(more >= strict * SURE * np.hypot(error, np.median(error)), more, 0.0)
