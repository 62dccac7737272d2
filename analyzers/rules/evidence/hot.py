"""A hot expert or embedding shard in words: the rank's load, and the fix that spreads it."""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.analyzers.job.peers.hot_shards import HotShard
from ddprof.findings import Evidence, Fix
from ddprof.units import format_ranks, format_share, format_us

MORE_BYTES = 1.02  # times the peers' in all-to-alls: less is none worth telling


def hot_words(shard: HotShard, numbers: tuple[int, ...]) -> str:
    """The beginning of the summary."""
    what = "lookups" if shard.kind == "embedding tables" else "tokens"
    return f"the {shard.kind} of {format_ranks(numbers)} get {shard.ratio:.2f}x their peers' {what}"


def hot_evidence(shard: HotShard, rank: int) -> Iterator[Evidence]:
    """Evidence on the extra time of the shard's rank and on the bytes that it exchanges."""
    yield Evidence(
        f"{shard.operator} takes {format_us(shard.excess_us)} per step longer on rank {rank} than on its peers; other "
        "compute takes as long as theirs",
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
            setting=f"placement of the embedding tables of {format_ranks(numbers)}",
            suggested="split the hot table by rows or columns, or place tables by the lookups they get",
            patch='constraints = {"hot_table": ParameterConstraints(sharding_types=["row_wise", "column_wise"])}\n'
            "planner = EmbeddingShardingPlanner(topology=topology, constraints=constraints)",
            why="all ranks wait for its lookups; its tables are used more, its device is not slower",
            source="TorchRec documentation: planner and sharding types",
        )
    return Fix(
        setting=f"routing to the experts of {format_ranks(numbers)}",
        suggested="a load-balancing loss, a capacity factor of 1.0 to 1.25, or hot experts spread over ranks",
        patch="aux_loss = experts * (tokens_per_expert / tokens * router_probability.mean(0)).sum()\n"
        "loss = loss + 0.01 * aux_loss",
        why="all ranks wait for the busiest experts; their device is not slower",
        source="Switch Transformers (JMLR'22) sections 2.2 and 4: capacity factor and load balancing loss",
    )
