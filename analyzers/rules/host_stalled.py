"""The host stops for long moments inside any call.

What it detects: calls that usually return within microseconds, and now and then take a hundred times as long. They come
anywhere in the step, while the device has nothing launched to run.
Why it costs: the device starves until the host is back, and every other rank waits for it in the next collective. Ranks
that stop at different moments wait for each of them in turn.
How the gain is priced: the run is replayed with each of those calls as short as it usually is. It gains no more than
the time that devices starve in them, and what other ranks wait for those ranks. On CPU ranks the counters of the kernel
also show more threads, or more ranks bound to cores, than cores. They show threads of the script that take cores from
ranks; what that costs is known within bounds.
How to fix: give each rank its own cores, fewer threads beside it, no swapping, no thread that holds the GIL.
Limits: what held the host is not in the trace. A stop that occurs at the same place in every step counts as the program
itself; the first call of a kind and the first launch of a kernel count as start-up. Where the same few ranks stall, so
that their hosts are slower on the whole, straggler.host names them.
Sources: OSDI'25 section 5; Linux scheduler documentation (sched-design-CFS); Python's switch interval (sys module).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ddprof import intervals
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.oversubscription import Oversubscribed, oversubscribed
from ddprof.analyzers.job.script.lines import lines_in
from ddprof.analyzers.job.script.threads import busy_threads, makes_batches
from ddprof.analyzers.job.whole_run.cpu_waits import BUSY_SHARE, traced_shares
from ddprof.analyzers.rules.evidence.loader_fixes import taken_cores, thread_fix
from ddprof.analyzers.rules.evidence.spans import at, charged_us
from ddprof.analyzers.rules.straggler_host import slow_hosts
from ddprof.finding_ids import HOST_STALLED
from ddprof.findings import Abstention, Alters, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.tables import Array, Table
from ddprof.units import format_name, format_ranks, format_share, format_us
from ddprof.whose import having

MIN_SHARE = 0.015  # of the step starved in stalls on the rank that has most of them; that of host.launch_bound
MIN_STALLS = 3  # one stop, or two, may be anything
# Shares of waits for a core that are lost: an operator waits for the last of its threads, or for none of them where
# cores were never idle; a rank that waits for its core would have waited for the rank that has it anyway (two ranks on
# one core: 0.4 to 0.75, measured 2026-11-28).
OF_THREADS, OF_RANKS = (0.0, 1.0), (0.5, 1.0)


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find stalls that starve devices, and CPU ranks that lack cores."""
    yield from filter(None, (on_few_cores(measures), threads_take_cores(measures)))
    ranks = measures.job.ranks
    starved = measures.stalled_us
    inside = [facts.stalls.take(facts.is_issued_in_steps(facts.stalls["start_ns"])) for facts in ranks]
    counts = np.array([len(table) for table in inside])
    worst = int(np.argmax(starved))
    if starved[worst] < MIN_SHARE * measures.step_us or counts[worst] < MIN_STALLS:
        return
    stalled_ns = np.array([(table["end_ns"] - table["start_ns"]).sum() for table in inside], float)
    lengths_us = stalled_ns / 1e3 / max(1, measures.steps)
    stalling = having(lengths_us)
    is_lone = len(ranks) == 1 and len(measures.job.missing_ranks) > 0  # of the others nothing is known
    numbers = measures.ranks(stalling) if is_lone else measures.theirs(lengths_us)
    limits = execution_of(measures.job).limits
    slow, _ = slow_hosts(measures.host, measures.job.pipeline, limits.min_host_excess * measures.step_us)
    if numbers and not len(np.setdiff1d(stalling, slow)):
        return  # the same ranks' hosts are slow on the whole, and straggler.host names them
    per_step = counts[stalling] / max(1, measures.steps)
    longest_us = max(int((inside[p]["end_ns"] - inside[p]["start_ns"]).max()) for p in stalling.tolist()) / 1e3
    yield Candidate(
        id=RULE.id,
        summary=f"{_subject(measures, numbers)} in calls that are normally instant",
        ranks=numbers,
        lost_us=float(starved.mean()),
        times_us=tuple(lengths_us.tolist()),
        changes=(Change("no_stalls", numbers),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(f"{_range(per_step)} per step, up to {format_us(longest_us)} each"),
            *_evidence(measures, inside, stalling, lengths_us),
        ),
        fixes=(
            Fix(
                setting="CPU of " + format_ranks(numbers),
                suggested="as many cores per rank as it has busy threads, none shared; no swapping",
                patch="numactl --cpunodebind=N --membind=N  # or torchrun --numa-binding=node; OMP_NUM_THREADS=1; "
                "vmstat 1 shows run queue (r) and swapping (si)",
                why="the same calls are fast elsewhere in the step, so the thread was not running",
                source="OSDI'25 section 5; PyTorch performance tuning guide",
            ),
            Fix(
                setting="threads of the training process",
                suggested="move work that holds the GIL (monitoring, logging, loading in threads) to other processes",
                patch="py-spy dump --pid PID  # or perf sched timehist: what runs while the training thread does not",
                why="a thread that computes in Python keeps the GIL for 5 ms at a time",
                source="Python documentation: sys.setswitchinterval",
            ),
        ),
        ceiling_us=float(starved.max()) + charged_us(measures, stalling.tolist()),
    )


def _subject(measures: Measures, numbers: tuple[int, ...]) -> str:
    whom = measures.whom(numbers)
    return f"the CPU process of {whom} stalls" if whom.startswith("rank ") else f"the CPU processes of {whom} stall"


def _range(counts: Array) -> str:
    low, high = (f"{count:.0f}" if count >= 2 else f"{count:.2g}" for count in (counts.min(), counts.max()))
    return f"{low} stalls" if low == high else f"{low} to {high} stalls"


def _span(lengths_us: Array) -> str:
    low, high = format_us(float(lengths_us.min())), format_us(float(lengths_us.max()))
    return low if low == high else f"{low} to {high}"


def _evidence(measures: Measures, inside: list[Table], stalling: Array, lengths_us: Array) -> Iterator[Evidence]:
    """Evidence on each rank's stalls: their lengths, the calls they fell into, and the longest one."""
    most = stalling[np.argsort(-lengths_us[stalling], kind="stable")]
    share = measures.step_us or 1.0
    on = f" on {len(stalling)} of {len(inside)} ranks" if len(inside) > 1 else ""
    yield Evidence(
        f"stalls take {_span(lengths_us[stalling])} per step{on}; the device is idle "
        f"during them for up to {format_share(float(measures.stalled_us.max()) / share)} of the step"
    )
    worst = int(most[0])
    facts, stalls = measures.job.ranks[worst], inside[worst]
    where = Counter(_name(facts, name) for name in stalls["name"].tolist())
    names = ", ".join(f"{format_name(name)} ({count})" for name, count in where.most_common(4))
    others = len(where) - min(4, len(where))
    yield Evidence(f"inside {names}" + (f" and {others} other calls" if others else ""), measures.job.rank_ids[worst])
    lines = lines_in(facts, intervals.union(*stalls.bounds))[:3]
    if lines:
        words = ", ".join(f"{line.words} ({format_us(line.time_ns / 1e3)})" for line in lines)
        yield Evidence(f"in lines of the script: {words}", measures.job.rank_ids[worst])
    row = int(np.argmax(stalls["end_ns"] - stalls["start_ns"]))
    start, end, name = int(stalls["start_ns"][row]), int(stalls["end_ns"][row]), int(stalls["name"][row])
    usual = format_us(int(stalls["usual_ns"][row]) / 1e3)
    text = f"longest: {format_us((end - start) / 1e3)} in {format_name(_name(facts, name))}, usually {usual}"
    yield at(measures, worst, start, end, text, _name(facts, name))


def _name(facts: RankFacts, name: int) -> str:
    return "Python between calls" if name == NO_STRING else facts.strings[name]


def on_few_cores(measures: Measures) -> Candidate | None:
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
        id=RULE.id,
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


def threads_take_cores(measures: Measures) -> Candidate | None:
    """The finding on threads of the script that keep ranks from their cores (compression and hashing release the GIL);
    None where ranks lose little by them, or waits were not counted.
    """
    ranks, threads = measures.job.ranks, [busy_threads(facts) for facts in measures.job.ranks]
    cores = np.array([sum(thread.share for thread in of_rank) for of_rank in threads])
    taken = taken_cores(measures, cores) if execution_of(measures.job).computes_on_host and cores.any() else None
    if taken is None:
        return None
    numbers, worst = measures.theirs(cores), int(np.argmax(cores))
    busiest = threads[worst][0]
    used = f"a thread of {format_ranks(numbers) if numbers else 'each rank'} uses {cores[worst]:.1f} of "
    used += f"{taken.usable} cores, in {busiest.line}"
    on_cpu = f"{busiest.line} is on a CPU for {format_share(busiest.share)} of the traced time"
    fix = thread_fix(busiest.line) if makes_batches(ranks, busiest) else _elsewhere(busiest.line)
    return taken.candidate(measures, RULE.id, used, (Evidence(on_cpu, measures.job.rank_ids[worst]),), (fix,))


def _elsewhere(line: str) -> Fix:
    return Fix(
        setting=f"thread in {line}",
        suggested="less often, after the training, or in a process with a core of its own",
        why="it and the training threads wait for the same cores",
        source="PyTorch performance tuning guide",
        alters=Alters.CHORE,
    )


RULE = Rule(HOST_STALLED, "The host stalls in calls that are normally instant", detect, bound="host", tells_line=True)
