"""Withdrawal of findings that a busy machine explains: lateness that is no rank's fault, and slow transfers of CPU
ranks that are not the link's.
"""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.input_size import MIN_FED_SPREAD, fed_more_each_step
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.threads import threads_alone
from ddprof.analyzers.job.traffic.gradients import DEFAULT_BUCKET_MIB
from ddprof.analyzers.job.whole_run.cpu_waits import others_are_stretched, run_shares, traced_shares
from ddprof.finding_ids import (
    COMM_BANDWIDTH_BOUND,
    COMM_LATENCY_BOUND,
    COMM_NO_OVERLAP,
    HOST_STALLED,
    INPUT_STRAGGLER,
    STRAGGLER_COMPUTE,
    STRAGGLER_HOST,
    STRAGGLER_IMBALANCE,
    STRAGGLER_UNEXPLAINED,
)
from ddprof.findings import Basis, Candidate
from ddprof.tables import Array
from ddprof.units import format_ranks, format_share, format_us

_BUSY = "the machine is busy"
MOST = 0.5  # of a rank's lateness: waiting for a CPU that is more than this explains it
SURE = 2.0  # standard deviations: chance exceeds them once in 44 times
ON_HOSTS = (STRAGGLER_HOST, STRAGGLER_IMBALANCE, STRAGGLER_UNEXPLAINED, HOST_STALLED, INPUT_STRAGGLER)
# There operators wait for a CPU as well, and so do the threads that send and receive, one after another. What need not
# be called at all is told by its calls, whatever the machine does.
ON_CPU_RANKS = (*ON_HOSTS, STRAGGLER_COMPUTE, COMM_LATENCY_BOUND, COMM_BANDWIDTH_BOUND, COMM_NO_OVERLAP)
# The scheduler moves ranks over the cores that they share, so that none is slow for long: in 23 healthy runs one was on
# a CPU for up to 18 % longer than its peer (two cores of a virtual machine, 2026-11-26).
UNEQUAL_CORES = 0.2
LATE_FACTOR = 2.0  # as of a loader that is late, not starved (rules/input_starved.py)
NEEDLESS = ("drop_needless", "drop_meetings")  # kinds of changes


def explained_by_a_busy_machine(candidate: Candidate, measures: Measures) -> str | None:
    """Reason to withdraw a finding on late ranks, or on CPU ranks' transfers; None where it stands.

    A busy machine explains a rank that lacked a CPU for most of its lateness and does not compute longer than its
    peers: by CPU time in the traced steps, or over the whole run, which outvotes them; what timers of the run show, by
    that of the run alone. A rank that alone waits for a CPU over the whole run stands if its cores are its own, since
    something else runs there. Without such times, stops between CPU operators decide.
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
    lacked = [
        judged.waited[p] > late and run.is_shared(p) and not (judged.own(p, noise) >= late and run.own(p, noise) > 0)
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
    excess of stops is late by chance; a rank that alone is stopped stands, and so does what names no rank.
    """
    stops, job = measures.cpu_stops, measures.job
    if stops is None or not positions:
        return None
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
        f"{_BUSY}: it stops operators that are equal on all ranks, for {format_us(own_us)} per step on "
        f"{format_ranks(candidate.ranks)}, {format_us(others_us)} on the others; in {measures.steps} steps that may be "
        "chance"
    )


def _both(waited: Array, positions: list[int]) -> tuple[float, float]:
    """Means over the ranks at these positions, and over all others."""
    return float(waited[positions].mean()), float(np.median(np.delete(waited, positions)))
