"""How sharded parameters are gathered ahead of the compute that needs them, by the version of FSDP."""

from __future__ import annotations

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.settings import text
from ddprof.findings import Applies, Fix

BACKWARD_PRE = "BACKWARD_PRE"
_FORWARD_2 = "for unit, after in zip(blocks, blocks[1:]):\n    unit.set_modules_to_forward_prefetch([after])"
_BACKWARD_2 = "for unit, before in zip(blocks[1:], blocks):\n    unit.set_modules_to_backward_prefetch([before])"


def gather_ahead(measures: Measures, forward: bool, backward: bool) -> Fix:
    """The fix that gathers each unit one unit ahead in these passes."""
    fsdp = measures.settings.fsdp
    passes = " and ".join(name for name, wanted in (("forward", forward), ("backward", backward)) if wanted)
    applies: Applies
    if fsdp.version == 1:
        given = ("forward_prefetch=True",) * forward
        given += (f"backward_prefetch=BackwardPrefetch.{BACKWARD_PRE}",) * backward
        patch = f"FullyShardedDataParallel(model, ..., {', '.join(given)})"
        applies = (("forward_prefetch", True),) * forward + (("backward_prefetch", "pre"),) * backward
    else:
        patch = "\n".join((_FORWARD_2,) * forward + (_BACKWARD_2,) * backward)
        applies = (("forward_prefetch_units", 1),) * forward + (("backward_prefetch_units", 1),) * backward
    return Fix(
        setting=f"prefetch of parameters in {passes}",
        current=text(fsdp.backward_prefetch) if backward and not forward else None,
        suggested=BACKWARD_PRE if fsdp.version == 1 and backward and not forward else "gather each unit one unit ahead",
        applies=applies,
        patch=patch,
        why="the next unit's parameters travel while this one computes; memory for one more gathered unit",
        source="torch.distributed.fsdp documentation",
    )
