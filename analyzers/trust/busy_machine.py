"""Lateness that a busy machine explains is no rank's fault: it is said in place of accusing one."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.whole_run.cpu_waits import run_shares, traced_shares
from ddprof.findings import Basis, Candidate
from ddprof.tables import Array
from ddprof.units import format_ranks, format_share

_BUSY = "the machine is busy"
MOST = 0.5  # of a rank's lateness: waiting for a CPU that is more than this explains it
ON_HOSTS = ("straggler.host", "straggler.imbalance", "straggler.unexplained", "host.stalled", "input.straggler")
ON_CPU_RANKS = (*ON_HOSTS, "straggler.compute")  # there operators wait for a CPU as well


def explained_by_a_busy_machine(candidate: Candidate, measures: Measures) -> str | None:
    """Why this finding on late ranks is withdrawn; None where it stands.

    It explains a rank that had no CPU for most of what it is late by, and computes no longer than its peers for that:
    by the time on a CPU in the traced steps, or over the whole run, which outvotes them. A rank that alone waits for a
    CPU, over the whole run, stands where its cores are its own: something else runs there.
    """
    job, limits = measures.job, execution_of(measures.job).limits
    if candidate.basis is Basis.TIMED:  # that the machine is busy is what it says: with the ranks' own threads
        return None
    if candidate.id not in (ON_CPU_RANKS if execution_of(job).computes_on_host else ON_HOSTS):
        return None
    traced, run = traced_shares(job.ranks), run_shares(job.ranks)
    if not np.isfinite(traced.waited).all():
        return None
    lost = candidate.lost_us / max(measures.step_us, 1e-9)
    positions = [p for p, rank in enumerate(job.rank_ids) if rank in candidate.ranks]
    if not positions:
        words = f"{_BUSY}: ranks were ready to run and had no CPU for {format_share(float(traced.waited.mean()))}"
        return f"{words} of the traced time" if traced.waited.mean() > MOST * lost else None
    # What is lost is the mean over all ranks, and those that are late do not wait for themselves.
    late = MOST * lost * len(job.ranks) / max(1, len(job.ranks) - len(positions))
    noise = limits.min_compute_excess
    for p in positions:
        computes_more = traced.own(p, noise) >= late and run.own(p, noise) > 0
        if traced.waited[p] <= late or computes_more or not run.is_shared(p):
            return None
    (own, others), (ever, of_others) = (_both(shares.waited, positions) for shares in (traced, run))
    accused = format_ranks(candidate.ranks)
    return (
        f"{_BUSY}: {accused} had no CPU for {format_share(own)} of the traced time, the other ranks for "
        f"{format_share(others)}; over the whole run for {format_share(ever)} and {format_share(of_others)}"
    )


def _both(waited: Array, positions: list[int]) -> tuple[float, float]:
    """Of the ranks at these positions, and of all others."""
    return float(waited[positions].mean()), float(np.median(np.delete(waited, positions)))
