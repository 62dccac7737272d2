"""Less sharding: parameters that stay gathered between the passes where memory allows, or shards inside each host."""

from __future__ import annotations

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.present import text
from ddprof.findings import Fix

ROOM = 0.85  # of the device's memory: below it less sharding may fit


def has_room(measures: Measures) -> bool:
    """True where no rank's memory was nearly full, or none was recorded."""
    memory = [rank.memory for rank in measures.job.ranks]
    return not any(
        m["peak_allocated_bytes"] > ROOM * m["total_bytes"]
        for m in memory
        if m.get("peak_allocated_bytes") and m.get("total_bytes")
    )


def keep_gathered(measures: Measures) -> Fix:
    """The fix that gathers each unit once per step."""
    settings = measures.settings
    why = "parameters stay gathered between forward and backward, which saves one all-gather pass"
    if settings.deepspeed.zero_stage:
        return Fix(
            setting="stage",
            current=text(settings.deepspeed.zero_stage),
            suggested="2",
            patch='"zero_optimization": {"stage": 2}',
            why=why,
            source="ZeRO paper; DeepSpeed documentation on ZeRO",
        )
    is_first = settings.fsdp.version == 1
    return Fix(
        setting="reshard_after_forward",
        current=text(settings.fsdp.reshard_after_forward),
        suggested="False",
        applies=(("reshard_after_forward", False),),
        patch="FullyShardedDataParallel(model, ..., sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)"
        if is_first
        else "fully_shard(module, reshard_after_forward=False)",
        why=why,
        source=f"ZeRO paper; torch.distributed.fsdp{' documentation' if is_first else '.fully_shard documentation'}",
    )


def within_hosts(measures: Measures) -> Fix | None:
    """The fix that shards inside each host and replicates across hosts; None where no two hosts were seen, or for
    DeepSpeed, which has no such sharding any more (MiCS was removed).
    """
    if len({rank.identity.host for rank in measures.job.ranks}) < 2 or measures.settings.deepspeed.zero_stage:
        return None
    patch = 'mesh = init_device_mesh("cuda", (nodes, gpus_per_node), mesh_dim_names=("replicate", "shard"))'
    if measures.settings.fsdp.version == 1:
        patch = "FullyShardedDataParallel(model, ..., sharding_strategy=ShardingStrategy.HYBRID_SHARD)"
    return Fix(
        setting="hybrid sharding",
        suggested="shards inside a node, replicas across nodes",
        patch=patch,
        why="parameters and gradients move over the fast links only; gradients are reduced once across nodes",
        source="torch.distributed.fsdp documentation (HYBRID_SHARD, a mesh of two dimensions)",
    )
