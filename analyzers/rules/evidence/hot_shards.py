"""A hot expert or embedding table in words: the rank's load, the fix that spreads it, and steps in which it is hot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.peers.hot_shards import HotShard, hot_in_steps
from ddprof.analyzers.job.waiting.lateness import making_most
from ddprof.analyzers.rules.evidence.spans import largest_wait
from ddprof.finding_ids import STRAGGLER_IMBALANCE
from ddprof.findings import Basis, Candidate, Change, Evidence, Fix
from ddprof.units import format_ranks, format_share, format_us

MORE_BYTES = 1.02  # times the peers' in all-to-alls: less is none worth telling


def hot_words(shard: HotShard, numbers: tuple[int, ...]) -> str:
    """The beginning of the summary."""
    what = "lookups" if shard.kind == "embedding tables" else "tokens"
    whose = f"the {shard.kind} of {format_ranks(numbers)}" if numbers else f"the busiest {shard.kind}"
    return f"{whose} get {shard.of_mean:.2f}x the {what} of the mean rank"


def hot_evidence(shard: HotShard, rank: int, often: str = "per step") -> Iterator[Evidence]:
    """Evidence on the extra time of the shard's rank and on the bytes that it exchanges."""
    yield Evidence(
        f"{shard.operator} and what goes with it take {format_us(shard.excess_us)} {often} longer on rank {rank} than "
        "on its peers; other compute takes as long as theirs",
        rank,
    )
    if shard.received is not None and shard.received >= MORE_BYTES:
        yield Evidence(
            f"all-to-alls of rank {rank} carry {format_share(shard.received - 1)} more bytes than a peer's", rank
        )


def hot_fix(shard: HotShard, numbers: tuple[int, ...]) -> Fix:
    """The fix that spreads the load."""
    if shard.kind == "embedding tables":
        return Fix(
            setting="placement of the embedding tables" + (f" of {format_ranks(numbers)}" if numbers else ""),
            suggested="split the hot table by rows or columns, or place tables by the lookups they get",
            patch='constraints = {"hot_table": ParameterConstraints(sharding_types=["row_wise", "column_wise"])}\n'
            "planner = EmbeddingShardingPlanner(topology=topology, constraints=constraints)",
            why="all ranks wait for its lookups; its tables are used more, its device is not slower",
            source="TorchRec documentation: planner and sharding types",
        )
    return Fix(
        setting="routing to the experts" + (f" of {format_ranks(numbers)}" if numbers else ""),
        suggested="a load-balancing loss, a capacity factor of 1.0 to 1.25, or hot experts spread over ranks",
        patch="aux_loss = experts * (tokens_per_expert / tokens * router_probability.mean(0)).sum()\n"
        "loss = loss + 0.01 * aux_loss",
        why="all ranks wait for the busiest experts; their device is not slower",
        source="Switch Transformers (JMLR'22) sections 2.2 and 4: capacity factor and load balancing loss",
    )


def hot_in_some_steps(measures: Measures, least: float) -> Iterator[Candidate]:
    """Candidates for experts or tables that are hot in some steps, or on ranks in turn; none where other work is what
    differs most, in one step alone, or by less than the share `least` of the step."""
    spread = np.nan_to_num(measures.work.per_step.max(axis=0) - measures.work.per_step.mean(axis=0))
    lost_us = float(measures.cause_us("comm_wait").mean())
    if lost_us < least * measures.step_us:
        return
    by_step, most = hot_in_steps(measures.job.ranks), making_most(spread).tolist()
    if len(most) < 2 or not set(most) <= set(by_step):
        return
    shards = sorted((by_step[step] for step in most), key=lambda shard: shard.of_mean)
    shard = shards[len(shards) // 2]
    positions = sorted({each.position for each in shards})
    numbers = measures.ranks(positions) if len(positions) == 1 else ()
    among = f", in {len(most)} of {measures.steps} steps" if numbers else ", on one rank after the other"
    late_rank = measures.job.rank_ids[shard.position]
    yield Candidate(
        id=STRAGGLER_IMBALANCE,
        summary=hot_words(shard, numbers) + among,
        ranks=numbers,
        lost_us=lost_us,
        changes=(Change("balance_compute"),),
        basis=Basis.COMPARED,
        evidence=(*hot_evidence(shard, late_rank, "in such a step"), *largest_wait(measures, shard.position)),
        fixes=(hot_fix(shard, numbers),),
        ceiling_us=float((measures.cause_us("comm_wait") + measures.cause_us("comm_transfer")).max()),
    )
