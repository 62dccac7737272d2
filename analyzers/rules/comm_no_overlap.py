"""Large collectives start after the compute that could hide them.

What it detects: gradient all-reduces of which compute hides almost nothing, although the backward pass is long enough;
and gathers of sharded parameters (FSDP) that begin after the previous unit's compute, which could have hidden them.
Why it costs: the whole transfer is added to the step.
How the gain is priced: the run is replayed with the transfer hidden by the backward pass, except for what does not fit
and a last bucket of 25 MiB; with each unit gathered one unit ahead.
How to fix: DDP's default buckets in place of one huge bucket or of a reduction after the backward pass; gradient hooks;
no static delay. With FSDP prefetching: forward_prefetch and backward_prefetch, set_modules_to_forward_prefetch, and a
host that is ahead of its device.
Limits: gradients that become ready only at the end (one huge layer) cannot be hidden: where no size of buckets helps,
they become comm.bandwidth_bound. The gather of the first unit cannot be hidden either.
Sources: PyTorch DDP (VLDB'20): overlap gained 38 % (ResNet) and 35 % (BERT) with NCCL; PyTorch FSDP (VLDB'23) section
3.3 on prefetching.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.kinds import DEFAULT_BUCKET_MIB
from ddprof.analyzers.job.traffic.units import ROLE
from ddprof.analyzers.replay.changes.communication.transfers import BY_HOOKS, FEWEST_TO_OVERLAP
from ddprof.analyzers.rules.comm_bandwidth_bound import saturated
from ddprof.analyzers.rules.evidence.exposures import doubtful, of_reason, stands_on
from ddprof.analyzers.rules.evidence.present import is_new, text
from ddprof.analyzers.rules.evidence.sharded import UnitCosts, has_room, keep_gathered, unit_costs
from ddprof.analyzers.rules.evidence.spans import exposed_transfer
from ddprof.finding_ids import COMM_NO_OVERLAP
from ddprof.findings import Abstention, Applies, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import MIB, format_bytes, format_us

SMALL_PART = 0.1  # of what could be hidden: a pass with less is not worth naming
BACKWARD_PRE = "BACKWARD_PRE"
_LET_AHEAD = Fix(
    setting="calls that keep the host from running ahead",
    suggested="no .item(), no copy to the host and no synchronisation inside the passes; compiled blocks",
    why="FSDP launches a gather when the host reaches its unit, so a host that runs ahead prefetches",
    source="torch.distributed.fsdp documentation",
)
_FORWARD_2 = "for unit, after in zip(blocks, blocks[1:]):\n    unit.set_modules_to_forward_prefetch([after])"
_BACKWARD_2 = "for unit, before in zip(blocks[1:], blocks):\n    unit.set_modules_to_backward_prefetch([before])"


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Find exposed gradient traffic that compute could hide."""
    yield from doubtful(measures, RULE.id, "no_overlap")
    for exposure in of_reason(measures, "no_overlap"):
        traffic = exposure.traffic
        bucket = min(DEFAULT_BUCKET_MIB * MIB, (traffic.total_bytes or math.inf) / FEWEST_TO_OVERLAP)
        volume = f" of {format_bytes(traffic.total_bytes)}" if traffic.total_bytes else ""
        suggested = f"{max(1, round(bucket / MIB))}"
        yield Candidate(
            id=RULE.id,
            summary=f"{traffic.op}{volume} per step starts too late to overlap with compute",
            lost_us=traffic.exposed_us,
            changes=(Change("overlap", (), (bucket,), traffic.role),),
            basis=stands_on(exposure),
            evidence=(
                Evidence(traffic.transfer_words),
                *exposed_transfer(measures, traffic),
            ),
            fixes=(_fix(measures, suggested),),
            instead=saturated(measures, exposure),
        )
    yield from _late_gathers(measures)


def _late_gathers(measures: Measures) -> Iterator[Candidate]:
    """Candidates for gathers of sharded units that begin after the compute that could hide them."""
    exposures = of_reason(measures, "sharding")
    costs = unit_costs(measures) if exposures else None
    if costs is None or not costs.lacks_prefetch:
        return
    forward_us = costs.prefetchable_forward_us
    backward_us = costs.prefetchable_us - forward_us
    least = SMALL_PART * costs.prefetchable_us
    fix = gather_ahead(measures, forward_us >= least, backward_us >= least)
    passes = " and ".join(n for n, us in (("forward", forward_us), ("backward", backward_us)) if us >= least)
    yield Candidate(
        id=RULE.id,
        summary="FSDP all-gathers are not prefetched",
        lost_us=sum(e.traffic.exposed_us for e in exposures),
        changes=(Change("prefetch_gathers", target=ROLE),),
        basis=stands_on(*exposures),
        evidence=(
            Evidence(
                f"{format_us(sum(e.traffic.exposed_us for e in exposures))} of FSDP traffic per step is exposed; "
                f"prefetching could hide {format_us(costs.prefetchable_us)} of it. In {passes}, {_held(costs)}"
            ),
            *exposed_transfer(measures, exposures[0].traffic),
        ),
        fixes=_earlier(measures, costs, fix),
    )


def _earlier(measures: Measures, costs: UnitCosts, ahead: Fix) -> tuple[Fix, ...]:
    """Fixes that start gathers earlier and, where possible, the fix that halves their number (not in the price)."""
    fewer = keep_gathered(measures)
    host = () if costs.host_is_ahead and is_new(ahead) else (_LET_AHEAD,)
    has_fewer = costs.gathers_again and has_room(measures) and is_new(fewer)
    return (*((ahead,) if is_new(ahead) else ()), *((fewer,) if has_fewer else ()), *host)


def _held(costs: UnitCosts) -> str:
    if costs.host_is_ahead:
        return "the host launches gathers early enough, but the device runs them only after the previous unit"
    return "the host launches each gather only after the device has computed the previous unit"


def _fix(measures: Measures, suggested: str) -> Fix:
    buckets = Fix(
        setting="bucket_cap_mb",
        current=text(measures.settings.ddp.bucket_cap_mb),
        suggested=suggested,
        patch=f"DistributedDataParallel(model, bucket_cap_mb={suggested})",
        applies=(("bucket_cap_mb", float(suggested)),),
        why="buckets are reduced as soon as their gradients exist, while backward goes on",
        source="PyTorch DDP (VLDB'20)",
    )
    why = f"buckets hold {suggested} MiB already, so their size does not delay the reduction"
    return buckets if is_new(buckets) else replace(BY_HOOKS, why=why, source=buckets.source)


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
        why="the next unit is gathered while this one computes; needs memory for one more gathered unit",
        source="torch.distributed.fsdp documentation",
    )


RULE = Rule(
    COMM_NO_OVERLAP, "Communication starts too late to be hidden", detect, bound="communication", reads_traffic=True
)
