"""Timers of all steps outvote the few traced steps: a rank that is late in the traced steps only is not accused."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.input_size import MIN_FED_SPREAD, fed_more_each_step
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.whole_run.cpu_waits import run_shares
from ddprof.analyzers.job.whole_run.own_times import own_ns
from ddprof.analyzers.job.whole_run.unprofiled_steps import MIN_STEPS, unprofiled_step_us, unprofiled_steps
from ddprof.findings import Basis, Candidate
from ddprof.units import format_us

_ON_RANKS = "straggler."
MOST = 0.5  # of a rank's lateness: what the timers show of it in the traced steps, and what is left outside them
SURE = 2.0  # standard errors: chance exceeds them once in 44 times


def contradicted_by_the_run(candidate: Candidate, measures: Measures) -> str | None:
    """Reason to withdraw a finding on late ranks; None where it stands.

    Ranks wait for one another in the backward pass; outside it a late rank takes longer by what its peers wait. Where
    timers show that in the traced steps, but less than half of it and little of a step in the many others, chance or a
    one-off event made it late. Lateness inside the backward pass, or with waits elsewhere, does not show in timers and
    is not judged here. A single step names no CPU rank that no timer shows to be late.
    """
    if not candidate.ranks or not candidate.id.startswith(_ON_RANKS):
        return None
    is_tested = candidate.basis is not Basis.UNTESTED
    verdicts = [_contradicted(measures, measures.job.rank_ids.index(rank), is_tested) for rank in candidate.ranks]
    return None if any(words is None for words in verdicts) else verdicts[0]


def _seen_once(job: JobFacts) -> bool:
    """True where CPU ranks are compared in a single step, as marked: one observation of each."""
    one_step = all(len(f.steps) == 1 and f.step_source != "inferred" for f in job.ranks)
    return one_step and execution_of(job).computes_on_host


def _computes_more(measures: Measures, position: int, least: float) -> bool:
    """True where the rank is fed more in every traced step, and on a CPU for longer over the run by this share of it,
    or has cores of its own and waited for them by so much longer: most of what that costs is in the backward pass, of
    which these timers say nothing."""
    ranks = measures.job.ranks
    shares = run_shares(ranks)
    if shares.lacked_alone(position) >= least:
        return True
    return bool(fed_more_each_step(ranks, MIN_FED_SPREAD)[position]) and shares.own(position, 0.0) >= least


def _is_sampled_alone(measures: Measures, position: int) -> bool:
    """True where samples of the whole run saw the rank, unlike its peers, in a line that is most of its lateness."""
    line = measures.alone.get(position)
    late_us = float(measures.late_us[position])
    return line is not None and line.samples > 0 and line.time_us - line.peers_us >= MOST * late_us


def _contradicted(measures: Measures, position: int, is_tested: bool) -> str | None:
    """Evidence of the timers against a rank's lateness, in words; None without any. Where the traced steps are too few
    for a test (not `is_tested`), the timers must confirm it, and other steps not be shorter by most of it.
    """
    ranks = measures.job.ranks
    # The timers show a rank that is late, by far more than chance, or what it is fed does, or samples in a line of its.
    if measures.timed_us[position] > 0 or measures.fed_more_us[position] > 0 or _is_sampled_alone(measures, position):
        return None
    if _seen_once(measures.job):
        return "each rank recorded one step on its CPU, and chance may make any rank the latest in one"
    traced = [
        own_ns(facts, [step for step in facts.sidecar.steps if step.profiled], beside_loader=True) for facts in ranks
    ]
    others = [own_ns(facts, unprofiled_steps(facts), beside_loader=True) for facts in ranks]
    if not all(len(times_ns) for times_ns in traced) or not all(len(times_ns) >= MIN_STEPS for times_ns in others):
        return None
    inside, outside = (np.array([times_ns.mean() for times_ns in every]) for every in (traced, others))
    error = np.array([times_ns.std(ddof=1) / np.sqrt(len(times_ns)) for times_ns in others])
    peers = np.arange(len(ranks)) != position
    if not peers.any() or not (inside > 0).all():
        return None
    excess_ns = inside[position] - float(np.median(inside[peers]))
    late_us = float(measures.late_us[position])
    bare_us = unprofiled_step_us(measures.job.ranks)
    if not is_tested and bare_us is not None and measures.step_us - bare_us >= MOST * late_us:
        return (
            f"in the traced steps only: {len(others[position])} others take {format_us(bare_us)}, the traced "
            f"{format_us(measures.step_us)}"
        )
    slowed = float(np.median(outside[peers] / inside[peers]))  # the profiler makes every rank slower
    left_ns = outside[position] - float(np.median(outside[peers]))
    at_most_ns = left_ns + SURE * float(np.hypot(error[position], np.median(error[peers])))
    is_gone = not is_tested or at_most_ns < MOST * slowed * excess_ns
    is_chance = excess_ns >= MOST * 1e3 * late_us and is_gone
    if not is_chance or _computes_more(measures, position, MOST * late_us / measures.step_us):
        return None
    rank = measures.job.rank_ids[position]
    taken, usual = format_us(float(outside[position]) / 1e3), format_us(float(np.median(outside[peers])) / 1e3)
    return (
        f"only in the traced steps: in {len(others[position])} others rank {rank} takes {taken} outside backward "
        f"passes and loading, the other ranks {usual}"
    )
