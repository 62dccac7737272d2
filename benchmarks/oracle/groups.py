"""Process groups and what a transfer inside one costs (alpha-beta model with ring factors)."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.oracle.spec import Parallel
from benchmarks.oracle.world import World

BYTES_PER_US_PER_GBPS = 1e3  # 1 GB/s = 1000 bytes per microsecond


@dataclass(frozen=True)
class Group:
    """A process group as the trace names it."""

    name: str
    desc: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Position of a rank, and its groups by role ("world", "dp", "tp", "pp", "shard", "replicate")."""

    groups: dict[str, Group]
    stage: int = 0


def layout(parallel: Parallel, world_size: int, rank: int, experts: bool = False) -> Layout:
    """The groups of a rank. TP is innermost, then DP, then PP, as Megatron and torch DeviceMesh order them."""
    default = Group("0", "default_pg", tuple(range(world_size)))
    if parallel.kind in ("ddp", "fsdp"):
        groups = {"world": default, "dp": default, "shard": default}
        return Layout(groups | ({"ep": Group("1", "mesh_ep", default.ranks)} if experts else {}))
    if parallel.kind == "hsdp":
        shard = world_size // parallel.replicas
        block, offset = divmod(rank, shard)
        return Layout(
            {
                "world": default,
                "shard": Group(str(1 + block), "mesh_dp_shard", tuple(range(block * shard, (block + 1) * shard))),
                "replicate": Group(
                    str(1 + parallel.replicas + offset), "mesh_dp_replicate", tuple(range(offset, world_size, shard))
                ),
            }
        )
    tp, dp = parallel.tp, parallel.dp
    column, row, stage = rank % tp, (rank // tp) % dp, rank // (tp * dp)
    per_stage = tp * dp
    groups = {"world": default}
    if tp > 1:
        first = stage * per_stage + row * tp
        groups["tp"] = Group(str(1 + stage * dp + row), "mesh_tp", tuple(range(first, first + tp)))
    if dp > 1 or parallel.kind == "pp":
        members = tuple(stage * per_stage + r * tp + column for r in range(dp))
        groups["dp"] = Group(str(1 + parallel.pp * dp + stage * tp + column), "mesh_dp", members)
    if parallel.pp > 1:
        members = tuple(s * per_stage + row * tp + column for s in range(parallel.pp))
        groups["pp"] = Group(str(1 + parallel.pp * (dp + tp) + row * tp + column), "mesh_pp", members)
    return Layout(groups, stage)


def ring_factor(collective: str, members: int) -> float:
    """Bytes every link carries, as a multiple of the full buffer."""
    if collective == "send":
        return 1.0
    return (2.0 if collective == "allreduce" else 1.0) * (members - 1) / members


def transfer_us(world: World, collective: str, size_bytes: float, ranks: tuple[int, ...]) -> float:
    """Time from the last arrival to the end, without noise; `size_bytes` is the full (gathered) buffer."""
    if world.comm_free or len(ranks) < 2:
        return 0.0
    cluster = world.cluster
    crosses = len({cluster.hosts[r] for r in ranks}) > 1
    alpha, gbps = (
        (cluster.inter_alpha_us, cluster.inter_gbps) if crosses else (cluster.intra_alpha_us, cluster.intra_gbps)
    )
    if collective == "send":
        alpha *= 0.7
    else:
        alpha += 1.2 * (len(ranks) - 2) ** 0.7 if len(ranks) > 2 else 0.0
    moved = ring_factor(collective, len(ranks)) * size_bytes * world.bytes_scale
    slowest = max(world.link_scale[r] for r in ranks)
    slowest *= world.pair_scale.get((ranks[0], ranks[-1]), 1.0) if collective == "send" else 1.0
    return alpha + slowest * moved / (gbps * BYTES_PER_US_PER_GBPS)
