"""Many small collectives are latency-bound.

What it detects: exposed collectives whose time is mostly per-call latency, read off the trace's own size -> time
points; sharded parameters (FSDP) in many units, several for each repeated block of the model (nested wrapping); blocks
so small that latency is most of a call. Small ones that need not be called are reported, too: metrics reduced in every
step, gradient norms reduced one by one, small buffers sent before each forward pass. So is the map of used parameters
(`find_unused_parameters=True`) where every parameter is used.
Why it costs: K calls pay K latencies, whatever their size.
How the gain is priced: on devices the run is replayed with DDP's default buckets (1 MiB, then 25 MiB), each reduced as
soon as its gradients exist. Calls of the script, other traffic and that of CPU ranks are gathered into 25 MiB: one
latency for each. Units are replayed as one for each block: fewer latencies, and a block's compute to hide the next
block's gather behind. On CPU ranks FSDP's Python around a unit shrinks as much. Calls that need not be made are left
out, which gains no more than they hold the ranks.
How to fix: a larger bucket_cap_mb (DeepSpeed: reduce_bucket_size); one FSDP unit per block.
Limits: gradients and sharded parameters only; small messages of tensor or expert parallel ranks depend on one another
and cannot be merged. With a single message size latency and bandwidth cannot be separated; then small messages count
that are very slow. So do those that take twice as long as their bytes, on a link faster for others or within a host. On
CPU ranks the timers of all steps tell collectives of the script that begin after the traced steps. A script may need a
value that it reduces between forward and backward, or two before the optimizer: nothing is said of those. That every
parameter is used is said of the traced passes. Units whose messages all have one size do not tell latency from a slow
link either: latency is then what a fast link would not need, and the price is marked as uncertain.
Sources: PyTorch DDP (VLDB'20) section 5 on bucket size, 3.2.3 on unused parameters; PyTorch FSDP (VLDB'23) on units.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.host_costs import UNIT_HOOKS
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.kinds import DEFAULT_BUCKET_MIB, DEFAULT_FIRST_BUCKET_MIB
from ddprof.analyzers.job.traffic.statistics import Traffic
from ddprof.analyzers.job.traffic.units import ROLE
from ddprof.analyzers.job.whole_run.called import calling_us
from ddprof.analyzers.replay.changes.communication.ddp_buckets import gradient_traffic
from ddprof.analyzers.rules.evidence.exposures import of_reason
from ddprof.analyzers.rules.evidence.present import text
from ddprof.analyzers.rules.evidence.redundant import calls_outside, could_go, lines_that_call
from ddprof.analyzers.rules.evidence.sharded import UnitCosts, unit_costs
from ddprof.analyzers.rules.evidence.spans import exposed_transfer
from ddprof.finding_ids import COMM_LATENCY_BOUND
from ddprof.findings import Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import MIB, format_bytes, format_share, format_us

ZERO_BUCKET_ELEMENTS = 500_000_000  # DeepSpeed's default reduce_bucket_size
_OF_FLAT = {  # the call for tensors in one; none where several operations are called
    "all_reduce": "dist.all_reduce(flat)",
    "broadcast": "dist.broadcast(flat, src=0)",
    "all_gather": "every = flat.new_empty(dist.get_world_size() * flat.numel())\n"
    "dist.all_gather_into_tensor(every, flat)",
}


def detect(measures: Measures) -> Iterator[Candidate]:
    """Find exposed collectives dominated by latency, and small ones that are not needed."""
    yield from could_go(measures, RULE.id, is_volume=False)
    for exposure in of_reason(measures, "latency"):
        traffic, share = exposure.traffic, exposure.latency_share
        is_measured = np.isfinite(share)
        lines = lines_that_call(measures.job.ranks[0], traffic.op, traffic.count)
        detail = f"; latency is {format_share(share)} of the transfer" if is_measured else ""
        yield Candidate(
            id=RULE.id,
            summary=f"{traffic.count:.0f} small {traffic.op} calls per step ({_each(traffic)}) are latency-bound"
            + (f", called at {lines[0]}" if lines else ""),
            lost_us=traffic.exposed_us,
            changes=(_merged(measures, traffic, is_called=bool(lines)),),
            basis=Basis.RECORDED if is_measured else Basis.DEDUCED,
            evidence=(
                Evidence(f"{traffic.transfer_words}{detail}"),
                *exposed_transfer(measures, traffic),
                *(Evidence(f"called at {line}", measures.job.rank_ids[0]) for line in lines[1:]),
            ),
            fixes=tuple(_joined(line, traffic.op) for line in lines) or (_fix(measures, traffic.op),),
            timed_us=calling_us(measures.job.ranks) if lines else None,
            band=0.2 if is_measured else 0.35,
        )
    yield from _small_units(measures)
    yield from calls_outside(measures, RULE.id, False, lambda ops: _joined("collectives of the script", *ops))


def _merged(measures: Measures, traffic: Traffic, is_called: bool) -> Change:
    """The change to fewer messages: DDP's buckets at their defaults, else calls that share buckets of that size. On CPU
    ranks every message takes a core from compute, hidden or not, which no schedule of buckets knows.
    """
    sizes_mib = (DEFAULT_BUCKET_MIB, DEFAULT_FIRST_BUCKET_MIB)
    by_ddp = traffic is gradient_traffic(measures) and not is_called and not execution_of(measures.job).computes_on_host
    return Change("merge_buckets", (), tuple(mib * MIB for mib in sizes_mib[: 1 + by_ddp]), traffic.role)


def _small_units(measures: Measures) -> Iterator[Candidate]:
    """Candidates for parameters sharded into more units than the model has blocks."""
    exposures = of_reason(measures, "sharding")
    costs = unit_costs(measures) if exposures else None
    if costs is None or costs.latency is None or costs.merged == 1:
        return
    calls = sum(e.traffic.count for e in exposures)
    each = f"{costs.per_block} for each of {costs.per_pass // costs.per_block} equal blocks"
    nested = costs.per_block > 1
    measured = costs.latency.is_measured
    most = "" if measured else "up to "
    latency = f"{most}{format_us(costs.latency.ns / 1e3)} ({format_share(costs.latency.share)}) of each call is latency"
    sized = any(e.traffic.total_bytes for e in exposures)
    why = (
        "assuming a fast link, as all messages have one size"
        if sized
        else "the shortest call, as no sizes were recorded"
    )
    on_host = execution_of(measures.job).computes_on_host  # a device may hide its host's time
    hooks = (Change("scale_part", (), (1 / costs.merged,), UNIT_HOOKS),) if on_host else ()
    guess = "" if measured else f", {why}"
    yield Candidate(
        id=RULE.id,
        summary=f"parameters are gathered in {costs.per_pass} small units per pass" + (f", {each}" if nested else ""),
        lost_us=sum(e.traffic.exposed_us for e in exposures),
        changes=(Change("merge_units", (), (float(costs.merged),), ROLE), *hooks),
        basis=Basis.RECORDED if measured and all(e.traffic.is_whole for e in exposures) else Basis.DEDUCED,
        evidence=(
            Evidence(f"{calls:.0f} collectives per step are latency-bound: {latency}{guess}"),
            *exposed_transfer(measures, exposures[0].traffic),
        ),
        fixes=(_fewer_units(measures, costs),),
        band=0.25 if measured else 0.4,
    )


def _fewer_units(measures: Measures, costs: UnitCosts) -> Fix:
    per_unit = "one block" if costs.per_block > 1 else f"{costs.merged} consecutive blocks"
    if measures.settings.fsdp.version == 1:
        patch = (
            "policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})\n"
            "model = FullyShardedDataParallel(model, auto_wrap_policy=policy)"
        )
    else:
        patch = "for block in model.blocks:\n    fully_shard(block)  # and not its parts\nfully_shard(model)"
    return Fix(
        setting="FSDP units",
        current=f"{costs.per_pass} units",
        suggested=f"{per_unit} per unit: about {max(1, costs.per_pass // costs.merged)} units",
        patch=patch,
        why="each unit is a gather in forward, one in backward and a reduction: fewer units pay fewer latencies, and "
        "longer compute hides each",
        source="PyTorch FSDP (VLDB'23) section 3; torch.distributed.fsdp documentation on auto_wrap_policy",
    )


def _fix(measures: Measures, op: str) -> Fix:
    buckets = _zero_buckets(measures) if measures.settings.deepspeed.zero_stage else _ddp_buckets(measures)
    if buckets.current is None or float(buckets.current) < float(buckets.suggested):
        return buckets
    why = f"{buckets.setting} is {buckets.current} already, so these calls are not buckets"
    return _joined("collectives outside the buckets", op, why=why)


def _joined(setting: str, *ops: str, why: str = "the script calls them one by one, and each pays the latency") -> Fix:
    call = _OF_FLAT.get(ops[0]) if len(ops) == 1 else None
    return Fix(
        setting=setting,
        suggested="one call for many tensors, flattened or coalesced; fewer calls where each needs the one before",
        patch=f"flat = torch.cat([t.flatten() for t in tensors])\n{call}  # one latency for all" if call else None,
        why=why,
        source="PyTorch DDP (VLDB'20) section 5 on bucket size",
    )


def _zero_buckets(measures: Measures) -> Fix:
    now = measures.settings.deepspeed.reduce_bucket_size
    return Fix(
        setting="reduce_bucket_size",
        current=text(now),
        suggested=str(ZERO_BUCKET_ELEMENTS),
        patch=f'"zero_optimization": {{"reduce_bucket_size": {ZERO_BUCKET_ELEMENTS}}}',
        applies=(("reduce_bucket_size", ZERO_BUCKET_ELEMENTS),),
        why="fewer, larger collectives pay the latency fewer times",
        source="DeepSpeed documentation on ZeRO (reduce_bucket_size)",
    )


def _ddp_buckets(measures: Measures) -> Fix:
    return Fix(
        setting="bucket_cap_mb",
        current=text(measures.settings.ddp.bucket_cap_mb),
        suggested="25",
        patch="DistributedDataParallel(model, bucket_cap_mb=25)",
        applies=(("bucket_cap_mb", 25),),
        why="fewer, larger collectives pay the latency fewer times",
        source="PyTorch DDP (VLDB'20); torch.nn.parallel.DistributedDataParallel documentation",
    )


def _each(traffic: Traffic) -> str:
    """Size of a message, from the smallest to the largest: a mean is of neither one gradient nor forty norms."""
    sizes = traffic.sizes_bytes[traffic.sizes_bytes > 0]
    if not len(sizes):
        return "sizes not recorded"
    least, most = format_bytes(float(sizes.min())), format_bytes(float(sizes.max()))
    return f"{least} each" if least == most else f"{least} to {most}"


RULE = Rule(
    COMM_LATENCY_BOUND, "Many small collectives are latency-bound", detect, bound="communication", reads_traffic=True
)
