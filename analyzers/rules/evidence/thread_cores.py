"""Threads of the script that keep ranks from their cores, such as compression or hashing, which release the GIL."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.threads import busy_threads
from ddprof.analyzers.job.whole_run.cpu_waits import traced_shares
from ddprof.analyzers.rules.evidence.worker_cores import MIN_COST, cost_of_cores
from ddprof.findings import Alters, Basis, Candidate, Evidence, Fix
from ddprof.units import format_ranks, format_share


def threads_take_cores(measures: Measures, rule_id: str) -> Candidate | None:
    """The finding on such threads of CPU ranks; None where ranks lose little by them, or waits were not counted."""
    ranks, processors, shares = measures.job.ranks, measures.settings.processors, traced_shares(measures.job.ranks)
    threads = [busy_threads(facts) for facts in ranks]
    cores = np.array([sum(thread.share for thread in of_rank) for of_rank in threads])
    if not execution_of(measures.job).computes_on_host or not processors.usable or not cores.any():
        return None
    if not np.isfinite(shares.waited).all():
        return None
    many = processors.local_ranks or len(ranks)
    cost, least = cost_of_cores(shares, float(cores.mean()) * many, many, processors.usable)
    if cost < MIN_COST:
        return None
    numbers, worst = measures.theirs(cores), int(np.argmax(cores))
    busiest, cost_us = threads[worst][0], cost * measures.step_us
    used = f"a thread of {format_ranks(numbers) if numbers else 'each rank'} uses {cores[worst]:.1f} of "
    used += f"{processors.usable} cores, in {busiest.line}"
    lacked = f"ranks wait for a CPU for {format_share(float(shares.waited.mean()))} of the time"
    return Candidate(
        id=rule_id,
        summary=f"{used}; {lacked}",
        ranks=numbers,
        lost_us=cost_us,
        basis=Basis.TIMED,
        evidence=(
            Evidence(
                f"{busiest.line} is on a CPU for {format_share(busiest.share)} of the traced time",
                measures.job.rank_ids[worst],
            ),
        ),
        fixes=(
            Fix(
                setting=f"thread in {busiest.line}",
                suggested="less often, after the training, or in a process with a core of its own",
                why="it and the training threads wait for the same cores",
                source="PyTorch performance tuning guide",
                alters=Alters.CHORE,
            ),
        ),
        ceiling_us=cost_us,
        band=1 - least / cost,
        times_us=tuple((cores * measures.step_us).tolist()),
        is_bound=True,
    )
