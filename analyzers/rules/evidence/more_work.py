"""Ranks with more work than their peers, in words and with the fix: larger batches, hot experts and tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ddprof import averages
from ddprof.analyzers.job.input_size import (
    BY_SCRIPT,
    ELEMENTS,
    OPERANDS,
    PARAMETERS,
    SAMPLES,
    LargerInput,
    is_fed_more,
)
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.peers.hot_shards import HotShard, hot_in_steps
from ddprof.analyzers.job.slowdown import peers
from ddprof.analyzers.job.waiting.lateness import making_most
from ddprof.analyzers.rules.evidence.spans import largest_wait
from ddprof.finding_ids import STRAGGLER_IMBALANCE
from ddprof.findings import Basis, Candidate, Change, Evidence, Fix
from ddprof.tables import Array
from ddprof.units import format_ranks, format_share, format_us


def fed_longer(measures: Measures, time_us: Array) -> Array:
    """Mask of ranks whose larger batches explain their excess over the typical rank in a time of each; shape (ranks,).

    Stages of a pipeline are fed different things: a rank is compared with replicas of its stage, or not at all.
    """
    usable = np.isfinite(time_us) & (time_us > 0)
    if not usable.any():
        return np.zeros(len(time_us), bool)
    explained = is_fed_more(measures.job.ranks, np.where(usable, time_us, 0.0) / averages.typical(time_us[usable]))
    has_peer = np.zeros(len(time_us), bool)
    for alike in peers(len(time_us), measures.job.pipeline):
        has_peer[alike] = len(alike) > 1
    return np.asarray(explained & has_peer)


_BATCHES = "batches of {}"
_LONGER = "larger batches take longer to compute, and the others wait"
_SPREAD_LOADS = "OSDI'25 section 5.3"
_FIXES = {
    SAMPLES: Fix(
        setting="batch size of {}",
        suggested="the same on every rank: shards of equal size, and one batch size",
        patch="DataLoader(data, batch_size=B, sampler=DistributedSampler(data))  # one data set, split evenly",
        why="larger batches take longer to fetch, collate and compute, and the others wait",
        source="PyTorch documentation: torch.utils.data.distributed.DistributedSampler",
    ),
    ELEMENTS: Fix(
        _BATCHES,
        "as large as on the other ranks: the same batch size, and samples of all lengths on every rank",
        _LONGER,
        _SPREAD_LOADS,
        patch="DistributedSampler(data, shuffle=True)  # no rank gets the long ones",
    ),
    BY_SCRIPT: Fix(_BATCHES, "as the loader gives them, or the same change on every rank", _LONGER, _SPREAD_LOADS),
    PARAMETERS: Fix(
        "parameters of {}",
        "equal shards of each layer on every rank, or layers split by the time they take",
        "larger layers take longer to compute, and the others wait",
        _SPREAD_LOADS,
    ),
    OPERANDS: Fix(
        "input of {}",
        "as large as on the other ranks: equal batches, samples of all lengths, tokens spread evenly over experts",
        "larger inputs take longer to compute, and the others wait",
        _SPREAD_LOADS,
    ),
}


def feeding_fix(larger: LargerInput, numbers: tuple[int, ...]) -> Fix:
    """The fix for input that is larger on some ranks in every step."""
    fix = _FIXES[larger.kind]
    return replace(fix, setting=fix.setting.format(format_ranks(numbers)), why=f"{larger.words}: {fix.why}")


# Hot experts and embedding tables.

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
