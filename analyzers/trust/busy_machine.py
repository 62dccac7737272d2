"""Withdrawal of findings: lateness and slow transfers that a busy machine explains, and what the timers of all steps
refute.
"""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.input_size import MIN_FED_SPREAD, fed_more_each_step
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.threads import threads_alone
from ddprof.analyzers.job.traffic.kinds import DEFAULT_BUCKET_MIB
from ddprof.analyzers.job.waiting.lateness import FEW_STEPS
from ddprof.analyzers.job.whole_run.cpu_waits import others_are_stretched, run_shares, traced_shares
from ddprof.analyzers.job.whole_run.own_times import lacked_cpu_is_counted, own_ns
from ddprof.analyzers.job.whole_run.unprofiled_steps import MIN_STEPS, unprofiled_step_us, unprofiled_steps
from ddprof.finding_ids import (
    COMM_BANDWIDTH_BOUND,
    COMM_LATENCY_BOUND,
    COMM_NO_OVERLAP,
    HOST_STALLED,
    INPUT_STRAGGLER,
    PIPELINE_IMBALANCE,
    STRAGGLER_COMPUTE,
    STRAGGLER_HOST,
    STRAGGLER_IMBALANCE,
    STRAGGLER_UNEXPLAINED,
)
from ddprof.findings import Basis, Candidate
from ddprof.tables import Array
from ddprof.units import format_count, format_ranks, format_share, format_us

_BUSY = "the machine is busy"
MOST = 0.5  # of a rank's lateness: waiting for a CPU beyond it explains it; so much the timers have to show, or to lack
SURE = 2.0  # standard deviations: chance exceeds them once in 44 times
ON_HOSTS = (STRAGGLER_HOST, STRAGGLER_IMBALANCE, STRAGGLER_UNEXPLAINED, HOST_STALLED, INPUT_STRAGGLER)
# There operators wait for a CPU as well, and so do the threads that send and receive, one after another. What need not
# be called at all is told by its calls, whatever the machine does.
ON_CPU_RANKS = (
    *ON_HOSTS,
    STRAGGLER_COMPUTE,
    PIPELINE_IMBALANCE,
    COMM_LATENCY_BOUND,
    COMM_BANDWIDTH_BOUND,
    COMM_NO_OVERLAP,
)
# The scheduler moves ranks over the cores that they share, so that none is slow for long: in 23 healthy runs one was on
# a CPU for up to 18 % longer than its peer (two cores of a virtual machine, 2026-11-26).
UNEQUAL_CORES = 0.2
LATE_FACTOR = 2.0  # as of a loader that is late, not starved (rules/input_starved.py)
NEEDLESS = ("drop_needless", "drop_meetings")  # kinds of changes


def explained_by_a_busy_machine(candidate: Candidate, measures: Measures) -> str | None:
    """Reason to withdraw a finding on late ranks, or on CPU ranks' transfers; None where it stands.

    A busy machine explains a rank that lacked a CPU for most of its lateness and does not compute longer than its
    peers: by CPU time in the traced steps, or over the whole run, which outvotes them; what timers of the run show, by
    that of the run alone, unless each step counts what it lacked a CPU for. A rank that alone waits for a CPU over the
    whole run stands if its cores are its own, since something else runs there. Without such times, stops between CPU
    operators decide.
    """
    job, limits = measures.job, execution_of(measures.job).limits
    if candidate.id not in (ON_CPU_RANKS if execution_of(job).computes_on_host else ON_HOSTS):
        return None
    if any(change.kind in NEEDLESS or change.target == "extra" for change in candidate.changes):
        return None
    cap_mib = measures.settings.ddp.bucket_cap_mb
    if candidate.id == COMM_LATENCY_BOUND and cap_mib is not None and cap_mib < DEFAULT_BUCKET_MIB:
        return None  # the script asks for many messages, whatever the machine does
    run, is_timed = run_shares(job.ranks), candidate.basis is Basis.TIMED
    judged = run if is_timed else traced_shares(job.ranks)  # of the steps that show it
    positions = [p for p, rank in enumerate(job.rank_ids) if rank in candidate.ranks]
    if is_timed and not positions:  # that the machine is busy is what it says: with the ranks' own threads
        return None
    # Chance picks a rank, and not what it runs alone (lines, threads, operators) or how much it is fed.
    more = measures.compute.has_more | fed_more_each_step(job.ranks, MIN_FED_SPREAD)
    apart = {*measures.alone, *threads_alone(job.ranks), *np.flatnonzero(more).tolist()}
    if positions and all(p in apart for p in positions):
        return None
    if candidate.id == INPUT_STRAGGLER and positions and _batches_cost_more(measures, positions):
        return None
    if not np.isfinite(judged.waited).all():
        return None if is_timed else _explained_by_stops(candidate, positions, measures)
    lost = candidate.lost_us / max(measures.step_us, 1e-9)
    if not positions:
        words = f"{_BUSY}: ranks were ready to run and had no CPU for {format_share(float(judged.waited.mean()))}"
        return f"{words} of the traced time" if judged.waited.mean() > MOST * lost else None
    # What is lost is the mean over all ranks, and those that are late do not wait for themselves.
    late = MOST * lost * len(job.ranks) / max(1, len(job.ranks) - len(positions))
    noise, accused = limits.min_compute_excess, format_ranks(candidate.ranks)
    shown = measures.timed_us / max(measures.step_us, 1e-9) * lacked_cpu_is_counted(job.ranks)
    lacked = [
        judged.waited[p] > late > shown[p]
        and run.is_shared(p)
        and not (judged.own(p, noise) >= late and run.own(p, noise) > 0)
        for p in positions
    ]
    if all(lacked):
        (own, others), (ever, of_others) = (_both(shares.waited, positions) for shares in (judged, run))
        of_run = f"; over the whole run for {format_share(ever)} and {format_share(of_others)}" * (not is_timed)
        return (
            f"{_BUSY}: {accused} had no CPU for {format_share(own)} of the {'run' if is_timed else 'traced time'}, the "
            f"other ranks for {format_share(others)}{of_run}"
        )
    is_own = [run.is_alone_on(p) or run.own(p, UNEQUAL_CORES) > 0 for p in positions]
    if candidate.id != STRAGGLER_COMPUTE or any(is_own) or not np.isfinite(run.on_cpu).all():
        return None
    own, others = _both(run.on_cpu, positions)
    return (
        f"{accused} may use the same cores as the other ranks: on a CPU for {format_share(own)} of the run, the others "
        f"for {format_share(others)}"
    )


def _batches_cost_more(measures: Measures, positions: list[int]) -> bool:
    """True where batches of these ranks take far more CPU time than their peers', which scheduling cannot explain."""
    timed = [facts.sidecar.fetching for facts in measures.job.ranks]
    cpu_ns = np.array([np.nan if fetched is None or fetched.cpu_ns is None else fetched.cpu_ns for fetched in timed])
    return bool((cpu_ns[positions] > LATE_FACTOR * np.median(np.delete(cpu_ns, positions))).all())


def _explained_by_stops(candidate: Candidate, positions: list[int], measures: Measures) -> str | None:
    """Reason to withdraw a finding by the stops of CPU ranks; None where it stands. A rank late by no more than its
    excess of stops is late by chance; a rank that alone is stopped stands. What names no rank is chance where stops are
    most of what is lost.
    """
    stops, job = measures.cpu_stops, measures.job
    if stops is None:
        return None
    stopped = f"{_BUSY}: it stops operators that are equal on all ranks, for"
    if not positions:
        stopped_us = float(stops.total_ns.mean()) / 1e3 / max(1, measures.steps)
        return f"{stopped} {format_us(stopped_us)} per step" if stopped_us > MOST * candidate.lost_us else None
    total_ns, noise_ns = stops.total_ns, stops.noise_ns
    lost_ns = candidate.lost_us * 1e3 * measures.steps
    late_ns = lost_ns * len(job.ranks) / max(1, len(job.ranks) - len(positions))
    for p in positions:
        own, others = float(total_ns[p]), float(np.median(np.delete(total_ns, positions)))
        chance_ns = SURE * float(np.hypot(noise_ns[p], np.median(np.delete(noise_ns, positions))))
        if late_ns > own - others + chance_ns or not others_are_stretched(stops.stretch, p):
            return None
    own_us, others_us = (each * 1e3 / max(1, measures.steps) for each in _both(total_ns / 1e6, positions))
    return (
        f"{stopped} {format_us(own_us)} per step on {format_ranks(candidate.ranks)}, {format_us(others_us)} on the "
        f"others; in {measures.steps} steps that may be chance"
    )


def _both(waited: Array, positions: list[int]) -> tuple[float, float]:
    """Means over the ranks at these positions, and over all others."""
    return float(waited[positions].mean()), float(np.median(np.delete(waited, positions)))


# Timers of all steps outvote the few traced steps: a rank that is late in the traced steps only is not accused.

_ON_RANKS = "straggler."


def contradicted_by_the_run(candidate: Candidate, measures: Measures) -> str | None:
    """Reason to withdraw a finding on late ranks; None where it stands.

    Ranks wait for one another in the backward pass; outside it a late rank takes longer by what its peers wait. Where
    timers show that in the traced steps, but less than half of it and little of a step in the many others, chance or a
    one-off event made it late. Lateness inside the backward pass, or with waits elsewhere, does not show in timers and
    is not judged here. Of a single step, or two without CPU times, no CPU rank is named that no timer shows to be late.
    """
    if not candidate.ranks or not candidate.id.startswith(_ON_RANKS):
        return None
    is_tested = candidate.basis is not Basis.UNTESTED
    verdicts = [_contradicted(measures, measures.job.rank_ids.index(rank), is_tested) for rank in candidate.ranks]
    return None if any(words is None for words in verdicts) else verdicts[0]


def _seen_too_rarely(measures: Measures, position: int) -> bool:
    """True where CPU ranks are compared in a single step, as marked; or in two, while nothing says that they had a CPU
    and the rank runs what its peers run."""
    ranks = measures.job.ranks
    is_apart = position in measures.alone or measures.compute.has_more[position]
    most = 1 if is_apart or np.isfinite(traced_shares(ranks).waited).all() else FEW_STEPS
    few_steps = all(len(f.steps) <= most and f.step_source != "inferred" for f in ranks)
    return few_steps and execution_of(measures.job).computes_on_host


def _computes_more(measures: Measures, position: int, least: float) -> bool:
    """True where the rank is fed more in every traced step, and on a CPU for longer over the run by this share of it:
    most of what that costs is in the backward pass, of which these timers say nothing."""
    ranks = measures.job.ranks
    return bool(fed_more_each_step(ranks, MIN_FED_SPREAD)[position]) and run_shares(ranks).own(position, 0.0) >= least


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
    if _seen_too_rarely(measures, position):
        steps = format_count(measures.steps, "step")
        return f"each rank recorded {steps} on its CPU, and chance may make any rank the latest in so few"
    traced = [
        own_ns(facts, [step for step in facts.sidecar.steps if step.profiled], beside_loader=True) for facts in ranks
    ]
    others = [own_ns(facts, unprofiled_steps(facts), beside_loader=True) for facts in ranks]
    if not all(len(times_ns) for times_ns in traced) or not all(len(times_ns) >= MIN_STEPS for times_ns in others):
        return None
    inside, outside = (np.array([times_ns.mean() for times_ns in every]) for every in (traced, others))
    error = np.array([times_ns.std(ddof=1) / np.sqrt(len(times_ns)) for times_ns in others])
    peers = np.arange(len(ranks)) != position
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
