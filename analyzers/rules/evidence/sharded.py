"""Why gathers of sharded units are exposed: many small units, no prefetching, or their volume."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mode

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.units import ROLE, UnitLatency, typical, unit_latency, unit_passes, units_per_block
from ddprof.analyzers.rules.evidence.exposures import TINY_BYTES
from ddprof.analyzers.rules.evidence.present import text
from ddprof.derived_once import remembered
from ddprof.findings import Fix

RANKS = 8  # looked at: the units of all ranks are the same
LATENCY_SHARE = 0.5  # of a call: more is latency than volume
LATE_SHARE = 1 / 3  # of the exposed gathers that compute could have hidden: of two or more of each pass it is half
FEWEST_LEFT = 4  # units of a pass, so that there is something to overlap
QUEUED_SHARE = 0.5  # of the compute before a gather, which the device still had to do when the host launched it


@dataclass(frozen=True)
class UnitCosts:
    """Units of a job's passes, and the cost of their gathers per step, us, mean over the examined ranks."""

    per_pass: int  # units gathered in a forward pass
    per_block: int  # of them for each repeated block of the model
    latency: UnitLatency | None
    exposed_us: float  # gathers
    prefetchable_us: float  # of that, which compute of the unit before could have hidden
    prefetchable_forward_us: float
    gathers_again: bool  # in backward passes
    host_is_ahead: bool  # gathers are launched while the compute before them has yet to be done
    mean_bytes: float = 0.0  # of a gather or reduction; 0 where not recorded

    @property
    def merged(self) -> int:
        """Units that should be one: those of a block, or of several small blocks; 1 for none."""
        latency = self.latency
        if latency is None or latency.share < LATENCY_SHARE:
            return 1
        if self.per_block > 1:
            return self.per_block
        # Blocks that are one unit each: only where latency was measured, and as many as make it half of a call, or a
        # message that is not tiny: how long those take tells little of a link.
        enough = round(latency.share / max(1e-3, 1 - latency.share))
        enough = max(enough, round(TINY_BYTES / self.mean_bytes) if self.mean_bytes else 0)
        return max(1, min(enough, self.per_pass // FEWEST_LEFT)) if latency.is_measured else 1

    @property
    def lacks_prefetch(self) -> bool:
        """True where prefetching one unit ahead could hide most of the exposed time."""
        return self.merged == 1 and self.prefetchable_us >= LATE_SHARE * self.exposed_us > 0


@remembered
def unit_costs(measures: Measures) -> UnitCosts | None:
    """Costs of the units; None where no parameters are gathered, or the trace does not show for which units."""
    job = measures.job
    of_ranks = [unit_passes(job, p) for p in range(min(RANKS, len(job.ranks)))]
    passes = [units for of_rank in of_ranks for units in of_rank]
    forwards = [one for of_rank in of_ranks if (one := typical(of_rank, is_backward=False)) is not None]
    if not forwards:
        return None
    scale = 1e-3 / (max(1, measures.steps) * sum(map(bool, of_ranks)))
    late = [units for units in passes if units.prefetchable_ns > 0]
    queued_ns = float(sum(np.minimum(units.queued_ns, units.unhidden_ns).sum() for units in late))
    return UnitCosts(
        per_pass=mode(len(one.gathers) for one in forwards),
        per_block=mode(units_per_block(one) for one in forwards),
        latency=unit_latency(measures.comm),
        exposed_us=scale * float(sum(units.exposed_gather_ns.sum() for units in passes)),
        prefetchable_us=scale * sum(units.prefetchable_ns for units in passes),
        prefetchable_forward_us=scale * sum(units.prefetchable_ns for units in passes if not units.is_backward),
        gathers_again=any(units.is_backward and (units.gathers >= 0).any() for units in passes),
        mean_bytes=_mean_bytes(measures),
        host_is_ahead=queued_ns >= QUEUED_SHARE * float(sum(units.unhidden_ns.sum() for units in late)) > 0,
    )


def _mean_bytes(measures: Measures) -> float:
    traffic = [traffic for traffic in measures.comm.traffic if traffic.role == ROLE]
    return sum(t.total_bytes for t in traffic) / max(1.0, sum(t.count for t in traffic))


# Less sharding: parameters that stay gathered between the passes where memory allows, or shards inside each host.

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
