"""Right answers for each fault, further true ones, and decoy costs."""

from __future__ import annotations

import itertools

from benchmarks.oracle import rarer_faults
from benchmarks.oracle.groups import layout
from benchmarks.oracle.simulate import Run
from benchmarks.oracle.spec import Fault

SMALL_SHARE = 0.10  # below it, calling the run compute bound is right as well
NOTICEABLE_SHARE = 0.02  # a cost this large may be mentioned without being the fault
DECOY_SHARE = 0.05
GAINLESS_SHARE = 0.01

ACCEPTABLE_IDS: dict[str, tuple[str, ...]] = rarer_faults.ACCEPTABLE | {
    "comm.sharding": ("comm.sharding", "comm.bandwidth_bound"),
    "memory.headroom": ("host.allocator", "memory.headroom"),
}
_COMM = ("comm.bandwidth_bound", "comm.latency_bound", "comm.no_overlap", "comm.sharding")
TOLERATED: dict[str, tuple[str, ...]] = {
    "input.starved": ("straggler.imbalance",),
    "input.straggler": ("input.starved",),
    "input.pageable_copy": ("host.sync",),
    "comm.latency_bound": _COMM,
    "comm.no_overlap": _COMM,
    "comm.bandwidth_bound": _COMM,
    "comm.sharding": _COMM,
    "comm.slow_link": _COMM,
    "straggler.host": ("host.launch_bound",),
    "host.launch_bound": ("host.sync",),
    "host.sync": ("host.launch_bound",),
    "host.checkpoint": ("host.sync", "input.pageable_copy"),
    "host.allocator": ("host.sync", "memory.headroom"),
    "memory.headroom": ("host.sync",),
    "pipeline.bubble": ("pipeline.bubble",),
    "host.stalled": ("host.launch_bound",),
    "comm.barrier": ("host.sync", "host.launch_bound"),
    "host.evaluation": ("host.sync",),
    "host.script": ("host.launch_bound",),
    "script.one_rank": ("host.launch_bound",),
    "fsdp.nested": _COMM,
    "fsdp.no_prefetch": _COMM,
    "pipeline.slow_link": ("pipeline.bubble",),
    "pipeline.imbalance": ("pipeline.bubble",),
    "compute.unfused_optimizer": ("host.launch_bound",),
}
BOUNDS: dict[str, tuple[str, ...]] = {
    "straggler.compute": ("straggler",),
    "straggler.host": ("host", "straggler"),
    "straggler.imbalance": ("straggler",),
    "input.starved": ("input",),
    "input.straggler": ("input", "straggler"),
    "input.pageable_copy": ("host", "input"),
    "comm.latency_bound": ("communication",),
    "comm.no_overlap": ("communication",),
    "comm.bandwidth_bound": ("communication",),
    "comm.sharding": ("communication",),
    "comm.slow_link": ("communication", "straggler"),
    "comm.barrier": ("communication", "host"),
    "host.launch_bound": ("host",),
    "host.script": ("host",),
    "script.one_rank": ("host", "straggler"),
    "host.sync": ("host",),
    "host.gc": ("host", "straggler"),
    "host.stalled": ("host", "straggler"),
    "host.checkpoint": ("host",),
    "host.allocator": ("host", "memory"),
    "memory.headroom": ("host", "memory"),
    "pipeline.bubble": ("pipeline",),
    "pipeline.imbalance": ("pipeline", "straggler"),
    "compute.precision": ("compute",),
    "compute.unfused_optimizer": ("compute", "host"),
}
NAMED_RANKS = frozenset({
    "straggler.compute", "straggler.host", "input.straggler", "comm.slow_link", "imbalance.hot_expert",
    "imbalance.hot_table", "host.evaluation", "script.one_rank",
})  # fmt: skip
MANY_RANKS = 4  # up to here every set of ranks may be named where all of them stall at random


def culprits(run: Run, fault: Fault) -> tuple[list[int], list[list[int]]]:
    """The culprit ranks, and every accepted answer, the best first; those without a file need not be named."""
    ranks, accepted = _culprits(run, fault)
    for answer in accepted[:]:
        traced = [rank for rank in answer if rank not in run.scenario.missing_ranks]
        accepted += [traced] if traced and traced not in accepted else []
    return ranks, accepted


def _culprits(run: Run, fault: Fault) -> tuple[list[int], list[list[int]]]:
    everyone = list(range(run.world.size))
    if fault.id == "pipeline.imbalance":
        stage = int(float(fault.detail["stage"]))
        ranks = [r for r in everyone if layout(run.world.parallel, run.world.size, r).stage == stage]
        return ranks, [ranks]
    if fault.id == "pipeline.slow_link":
        return list(fault.ranks), [list(fault.ranks), *([rank] for rank in fault.ranks)]
    if fault.id == "host.stalled":
        sizes = range(1, len(everyone)) if len(everyone) <= MANY_RANKS else (len(everyone) - 1,)
        some = [list(ranks) for size in sizes for ranks in itertools.combinations(everyone, size)]
        return list(fault.ranks), [list(fault.ranks), *([] if fault.ranks else [everyone, *some])]
    if fault.id == "comm.slow_link":
        single = run.world.parallel.kind in ("ddp", "fsdp")
        return list(fault.ranks), [list(fault.ranks), []] if single else [list(fault.ranks)]
    if fault.id in NAMED_RANKS:
        return list(fault.ranks), [list(fault.ranks)]
    if fault.id == "host.gc":
        return [], [[], sorted({rank for rank, _ in run.world.gc})]
    if fault.id in ("host.checkpoint", "host.allocator", "memory.headroom"):
        if fault.ranks:
            return list(fault.ranks), [list(fault.ranks), []]
        return [], [[], everyone]
    if fault.id in ("input.pageable_copy", "input.preprocessing", "host.sync", "straggler.imbalance"):
        return [], [[], everyone]
    return [], [[]]


def tolerated_by_ledger(run: Run, job: object, comm_free_us: float) -> set[str]:
    """Ids whose cost is really there, whatever the fault is."""
    assert isinstance(job, dict)
    wall = job["wall_us"]
    found: set[str] = set()
    if run.world.parallel.pp > 1:
        found.add("pipeline.bubble")
    if not run.scenario.faults:
        return found
    if 1.0 - comm_free_us / wall > NOTICEABLE_SHARE:
        found |= set(_COMM)
    shares = {
        "host_launch": "host.launch_bound",
        "host_sync": "host.sync",
        "memcpy": "input.pageable_copy",
        "dataloader": "input.starved",
    }
    found |= {finding for cause, finding in shares.items() if job[cause] / wall > NOTICEABLE_SHARE}
    return found


def decoys(run: Run, job: object, comm_free_us: float) -> list[str]:
    """Costs that look large though removing them would gain nothing."""
    assert isinstance(job, dict)
    found = []
    wall = job["wall_us"]
    moving = [op.collective.transfer_us for rank in run.ranks for op in rank.ops if op.collective is not None]
    if (
        sum(moving) / len(run.ranks) / run.world.steps > DECOY_SHARE * wall
        and 1.0 - comm_free_us / wall < GAINLESS_SHARE
    ):
        found.append("hidden communication")
    found += [quirk.id.removeprefix("quirk.") for quirk in run.scenario.quirks]
    return found
