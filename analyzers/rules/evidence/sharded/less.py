"""Less sharding: parameters that stay gathered between the passes where memory allows."""

from __future__ import annotations

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.settings import text
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
    return Fix(
        setting="reshard_after_forward",
        current=text(measures.settings.fsdp.reshard_after_forward),
        suggested="False",
        applies=(("reshard_after_forward", False),),
        patch="fully_shard(module, reshard_after_forward=False)",
        why="parameters stay gathered between forward and backward, which saves one all-gather pass",
        source="ZeRO paper; torch.distributed.fsdp.fully_shard documentation",
    )
