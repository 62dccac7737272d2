"""CPU ranks that lack cores: to threads of their own, to each other, or to threads of the script beside them."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.oversubscription import Oversubscribed, oversubscribed
from ddprof.analyzers.job.script.threads import busy_threads, makes_batches
from ddprof.analyzers.job.whole_run.cpu_waits import BUSY_SHARE, traced_shares
from ddprof.analyzers.rules.evidence.loader_fixes import thread_fix
from ddprof.analyzers.rules.evidence.worker_cores import MIN_COST, cost_of_cores
from ddprof.findings import Alters, Basis, Candidate, Evidence, Fix
from ddprof.units import format_ranks, format_share

# Shares of waits for a core that are lost: an operator waits for the last of its threads, or for none of them where
# cores were never idle; a rank that waits for its core would have waited for the rank that has it anyway (two ranks on
# one core: 0.4 to 0.75, measured 2026-11-28).
OF_THREADS, OF_RANKS = (0.0, 1.0), (0.5, 1.0)


def on_few_cores(measures: Measures, rule_id: str) -> Candidate | None:
    """The finding on CPU ranks whose threads compete for their cores; None where they hardly wait."""
    over, waited = oversubscribed(measures.job.ranks), traced_shares(measures.job.ranks).waited
    if over is None or not np.isfinite(waited).all():
        return None
    share, mean = min(float(waited.mean()), over.share), format_share(float(waited.mean()))
    if share < BUSY_SHARE:
        return None
    why_lacking = f"ready to run without a CPU for {mean} of the traced time"
    if over.threads > 1:
        who = f"{over.threads} threads on each of {over.ranks} ranks share {over.cores} cores"
        why_lacking += f"; {over.threads * over.ranks} threads on {over.cores} cores make up to "
        why_lacking += f"{format_share(over.share)} of it"
    else:
        who = f"{over.ranks} ranks are bound to {over.cores} of the machine's {over.machine} cores"
    least, most = OF_THREADS if over.threads > 1 else OF_RANKS
    return Candidate(
        id=rule_id,
        summary=f"{who} and have none for {format_share(share)} of the time",
        lost_us=share * measures.step_us,
        basis=Basis.TIMED,
        evidence=(Evidence(why_lacking),),
        fixes=(_fewer_threads(over) if over.threads > 1 else _unbound(over),),
        ceiling_us=(least + most) / 2 * share * measures.step_us,
        band=(most - least) / (most + least),
        is_bound=True,
    )


def _fewer_threads(over: Oversubscribed) -> Fix:
    return Fix(
        setting="OMP_NUM_THREADS",
        current=str(over.threads),
        suggested=str(over.fitting),
        applies=(("omp_num_threads", over.fitting),),
        patch=f"OMP_NUM_THREADS={over.fitting} torchrun ...  # or torch.set_num_threads({over.fitting})",
        why="the threads of one operator wait for the last of them, which waits for a core",
        source="PyTorch performance tuning guide; torchrun documentation (OMP_NUM_THREADS)",
    )


def _unbound(over: Oversubscribed) -> Fix:
    return Fix(
        setting="cores of the ranks",
        current=f"{over.cores} for {over.ranks} ranks",
        suggested="at least one for each rank: no taskset, numactl or --cpu-bind that gives several ranks one",
        patch="taskset -cp PID  # or torchrun --numa-binding=node; srun --cpus-per-task=N --cpu-bind=cores",
        why="ranks on one core take turns, and each waits for the other in every collective",
        source="PyTorch performance tuning guide; torchrun documentation",
    )


def threads_take_cores(measures: Measures, rule_id: str) -> Candidate | None:
    """The finding on threads of the script that keep ranks from their cores (compression and hashing release the GIL);
    None where ranks lose little by them, or waits were not counted.
    """
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
        fixes=(thread_fix(busiest.line) if makes_batches(ranks, busiest) else _elsewhere(busiest.line),),
        ceiling_us=cost_us,
        band=1 - least / cost,
        times_us=tuple((cores * measures.step_us).tolist()),
        is_bound=True,
    )


def _elsewhere(line: str) -> Fix:
    return Fix(
        setting=f"thread in {line}",
        suggested="less often, after the training, or in a process with a core of its own",
        why="it and the training threads wait for the same cores",
        source="PyTorch performance tuning guide",
        alters=Alters.CHORE,
    )
