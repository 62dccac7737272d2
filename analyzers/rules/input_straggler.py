"""The loader of some ranks is late and the others wait for them.

What it detects: a few ranks spend far longer in the loader than the typical rank.
Why it costs: their step starts late, and everybody else waits for them in the first collective.
How the gain is priced: the run is replayed with those ranks' batches already in the prefetch queue.
How to fix: look at the shard, the storage path and the CPUs of those ranks.
Limits: which worker is slow is known only where ddprof captured the run (worker spans).
Sources: TraceML diagnosis of input stragglers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof import averages
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.script.occupying import loads_for_evaluation, occupying_line
from ddprof.analyzers.job.script.threads import making_line
from ddprof.analyzers.rules.evidence.late_line import with_line
from ddprof.analyzers.rules.evidence.loader_cost import drawing_line, evidence, fetch_cost, line_evidence
from ddprof.analyzers.rules.evidence.loader_fixes import loop_fix, made_beside, sampler_fix, taking, thread_fix
from ddprof.analyzers.rules.evidence.loader_starts import started_each_epoch
from ddprof.analyzers.rules.evidence.present import present_in
from ddprof.analyzers.rules.evidence.spans import charged_us, largest_span, largest_wait
from ddprof.analyzers.rules.input_starved import fetch_themselves, late_loaders, rank_demand, workers_fix
from ddprof.finding_ids import INPUT_STRAGGLER
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.tables import Array
from ddprof.units import format_count, format_ranks, format_us


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find loaders that are slow on a few ranks."""
    loader_us = measures.host_spans_us["dataloader"]
    if len(measures.job.ranks) < 2:
        yield Abstention(RULE.id, "only one rank was traced, so loaders cannot be compared")
        return
    remade = started_each_epoch(measures, alone=True)
    if remade is not None:
        yield remade
        return
    slow = late_loaders(measures)
    late = np.array([p for p in slow.tolist() if not loads_for_evaluation(measures.job.ranks[p])], np.int64)
    if not len(late):
        if len(slow):
            verb = "loads" if len(slow) == 1 else "load"
            yield Abstention(RULE.id, f"{format_ranks(measures.ranks(slow))} {verb} batches to evaluate, not to train")
        elif (taken := taking(measures, alone=True)) is not None:
            yield taken
        return
    numbers = measures.ranks(late)
    worst = int(late[np.argmax(loader_us[late])])
    drawing = drawing_line([measures.job.ranks[worst]])
    cost = None if drawing else fetch_cost(measures.job.ranks[worst])
    maker = making_line(measures.job.ranks[worst])
    in_loop = occupying_line(measures.job.ranks[worst], "dataloader") if maker is None else None
    who, is_one = format_ranks(numbers), len(numbers) == 1
    is_late = f"the data loader of {who} is late"
    if drawing is not None:
        is_late = f"the sampler of {who} is slow, in {drawing},"
    elif maker is not None:
        is_late = f"{who} {'waits' if is_one else 'wait'} for batches that {made_beside(maker)},"
    elif in_loop is not None:
        is_late = f"{who} {'is' if is_one else 'are'} late with batches that the training loop prepares, in {in_loop},"
    candidate = Candidate(
        id=RULE.id,
        summary=f"{is_late} and the other ranks wait for {'it' if is_one else 'them'}",
        ranks=numbers,
        lost_us=float(measures.cause_us("dataloader")[late].mean()) + _waited_us(measures, late),
        changes=(Change("instant_loader", numbers),),
        basis=Basis.COMPARED,
        evidence=(
            *evidence(cost, measures.job.rank_ids[worst]),
            *line_evidence(cost, measures.job.rank_ids[worst], [measures.job.ranks[worst]]),
            *_other_workers(measures, late, worst),
            *largest_span(measures, worst, "dataloader"),
            *largest_wait(measures, worst),
        ),
        fixes=_fixes(measures, worst, numbers, maker, in_loop) if drawing is None else (sampler_fix(drawing),),
    )
    yield with_line(measures, candidate) if fetch_themselves(measures) and drawing is None else candidate


def _other_workers(measures: Measures, late: Array, worst: int) -> tuple[Evidence, ...]:
    """Evidence of a late loader with another number of workers than its peers; none where that is not recorded."""
    counts = [facts.sidecar.loader.num_workers for facts in measures.job.ranks]
    own, peers = counts[worst], [n for p, n in enumerate(counts) if p not in late and n is not None]
    if own is None or not set(peers) - {own}:
        return ()
    theirs = str(peers[0]) if min(peers) == max(peers) else f"{min(peers)} to {max(peers)}"
    return (Evidence(f"{format_count(own, 'worker')}, its peers {theirs}", measures.job.rank_ids[worst]),)


def _waited_us(measures: Measures, late: Array) -> float:
    """Waiting for these ranks per step, mean over all, as far as their loaders' excess explains it."""
    loader_us = measures.host_spans_us["dataloader"]
    excess_us = float(loader_us[late].max()) - averages.typical(np.delete(loader_us, late))
    return min(charged_us(measures, late.tolist()), excess_us * (len(loader_us) - len(late)) / len(loader_us))


def _fixes(
    measures: Measures, worst: int, numbers: tuple[int, ...], maker: str | None, in_loop: str | None
) -> tuple[Fix, ...]:
    """Fixes for late batches of these ranks: of a thread (`maker`), of the loop itself (`in_loop`), or of a loader."""
    if maker is not None:
        return (thread_fix(maker),)
    if in_loop is not None:
        return (loop_fix(in_loop, present_in(measures.job).trains),)
    loader_us = measures.host_spans_us["dataloader"]
    usual_us = averages.typical(loader_us)
    waited_us = max(float(loader_us[worst]), usual_us + float(measures.loading_late_us[worst]))
    others, balance = "no other rank loads", ""  # as the first stage of a pipeline
    if usual_us > 0:
        others, balance = f"the typical one {format_us(usual_us)}", "rebalance shards by size, "
    return (
        Fix(
            setting="shard or storage of " + format_ranks(numbers),
            suggested=f"move the shard to local storage, {balance}free the CPU of that host",
            why=f"its loader takes {format_us(waited_us)} per step, {others}",
            source="TraceML diagnosis of input stragglers",
        ),
        workers_fix(measures, waited_us, rank_demand(measures, measures.step_us - waited_us, worst), worst),
    )


RULE = Rule(INPUT_STRAGGLER, "Some ranks' loaders are late", detect, bound="input", compares_ranks=True)
