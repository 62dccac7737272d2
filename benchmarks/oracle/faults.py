"""Effect of each fault on the run, and of its remedy: `build` turns a scenario into the world it runs in.

Removing a fault whose cause is a setting means the recommended setting under the same circumstances (the loader stays
as costly, the link as slow); removing any other fault means the run without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.oracle import rarer_faults
from benchmarks.oracle.draws import generator
from benchmarks.oracle.mess.catalogue import disturb
from benchmarks.oracle.spec import Fault, Scenario
from benchmarks.oracle.world import Moments, World, healthy_world

Effect = Callable[[World, Fault], None]
HUGE_BUCKET_MB = 1e6


def number(fault: Fault, key: str, default: float) -> float:
    """A numeric detail of a fault."""
    value = fault.detail.get(key, default)
    return float(value) if not isinstance(value, str) else default


def moments(world: World, fault: Fault, table: Moments, total_us: float, chance: float, pieces: int) -> None:
    """Scatter `total_us` in `pieces` over layers of the fault's ranks, in the steps that chance picks per rank."""
    for rank in fault.ranks or range(world.size):
        for step in range(world.steps):
            draw = generator(world.seed, "moment", fault.id, rank, step)
            if draw.uniform() >= chance:
                continue
            layers = draw.integers(0, world.model.layers, pieces)
            sizes = draw.uniform(0.8, 1.2, pieces) * total_us / pieces
            table[(rank, step)] = [(int(at), float(us)) for at, us in zip(layers, sizes, strict=True)]


def straggler_compute(world: World, fault: Fault) -> None:
    """The ranks' kernels run longer: all of them, from a step (`since`) on if need be, or (a power cap) those that keep
    the multiplying units busy.
    """
    table = world.matmul_scale if fault.detail.get("mode") == "matmul" else world.kernel_scale
    for rank in fault.ranks:
        if "since" in fault.detail:
            world.slow_since[rank] = (int(fault.detail["since"]), 1.0 + fault.strength)
        else:
            table[rank] *= 1.0 + fault.strength


def straggler_host(world: World, fault: Fault) -> None:
    """The ranks' hosts are slower throughout, or lose the CPU several times a step."""
    if fault.detail.get("mode") == "stall":
        moments(world, fault, world.stalls, fault.strength, 1.0, 3)
        return
    for rank in fault.ranks:
        world.host_scale[rank] *= fault.strength


def straggler_imbalance(world: World, fault: Fault) -> None:
    """Work differs between ranks and steps around the same mean; who has most changes from step to step."""
    size = world.size
    ladder = [1.0 + fault.strength * (2.0 * i / (size - 1) - 1.0) for i in range(size)]
    first = generator(world.seed, "imbalance").permutation(size)
    for step in range(world.steps):
        order = generator(world.seed, "imbalance", step).permutation(size).tolist()
        top, slowest = int(first[step % size]), order.index(size - 1)
        order[slowest], order[top] = order[top], size - 1
        for rank in range(size):
            world.imbalance[(rank, step)] = max(0.25, ladder[order[rank]])


def input_starved(world: World, fault: Fault) -> None:
    """Batches cost more than the workers can deliver."""
    world.set_loader(cost_us=fault.strength, workers=int(number(fault, "num_workers", 1)))


def enough_workers(world: World, fault: Fault) -> None:
    """Batches from the recommended number of workers."""
    world.set_loader(cost_us=fault.strength, workers=int(number(fault, "recommended_num_workers", 8)))


def input_straggler(world: World, fault: Fault) -> None:
    """The loaders of some ranks are slow."""
    for rank in fault.ranks:
        world.loader_scale[rank] *= fault.strength


def pageable_copy(world: World, fault: Fault) -> None:
    """Batches are large and not pinned."""
    world.set_model(pinned=False, batch_bytes=int(fault.strength))


def pinned_copy(world: World, fault: Fault) -> None:
    """Batches in pinned memory."""
    world.set_model(pinned=True, batch_bytes=int(fault.strength))


def latency(world: World, fault: Fault) -> None:
    """A link of high latency."""
    world.set_cluster(intra_alpha_us=fault.strength, inter_alpha_us=fault.strength)


def latency_bound(world: World, fault: Fault) -> None:
    """Small buckets on a link of high latency."""
    latency(world, fault)
    world.set_parallel(bucket_mb=number(fault, "bucket_cap_mb", 1.0))


def larger_buckets(world: World, fault: Fault) -> None:
    """Larger buckets on the link as it is."""
    latency(world, fault)
    world.set_parallel(bucket_mb=number(fault, "recommended_bucket_cap_mb", 25.0))


def slower_network(world: World, fault: Fault) -> None:
    """Every link `strength` times slower."""
    cluster = world.cluster
    world.set_cluster(intra_gbps=cluster.intra_gbps / fault.strength, inter_gbps=cluster.inter_gbps / fault.strength)


def wide_gradients(world: World, fault: Fault) -> None:
    """The slow network with gradients in single precision, which compression halves."""
    slower_network(world, fault)
    world.gradient_dtype = "Float"


def no_overlap(world: World, fault: Fault) -> None:
    """Gradients are reduced after backward: in one huge bucket, or bucket by bucket at the end."""
    slower_network(world, fault)
    if fault.detail.get("mode") == "late":
        world.set_parallel(overlap=False)
    else:
        world.set_parallel(bucket_mb=HUGE_BUCKET_MB)


def half_the_bytes(world: World, fault: Fault) -> None:
    """The slow network with gradients compressed to half."""
    slower_network(world, fault)
    world.bytes_scale *= 0.5


def slow_link(world: World, fault: Fault) -> None:
    """The links of some ranks are slower than their peers'; gradients in single precision, as a slow network's."""
    world.gradient_dtype = "Float"
    for rank in fault.ranks:
        world.link_scale[rank] *= 1.0 + fault.strength


def keep_parameters(world: World, fault: Fault) -> None:
    """The slow network without the second all-gather (SHARD_GRAD_OP), or sharded inside hosts only (HSDP)."""
    slower_network(world, fault)
    if fault.detail.get("remedy") == "hsdp":
        world.set_parallel(kind="hsdp", replicas=len(set(world.cluster.hosts)))
    else:
        world.set_parallel(reshard=False)


def launch_bound(world: World, fault: Fault) -> None:
    """Every host needs `strength` times as long for each operator."""
    world.host_scale = [scale * fault.strength for scale in world.host_scale]


def host_sync(world: World, fault: Fault) -> None:
    """`.item()` before some layers of forward, followed by Python work."""
    every = int(number(fault, "every", 1))
    world.syncs = dict.fromkeys(range(1, world.model.layers, every), fault.strength)


def host_gc(world: World, fault: Fault) -> None:
    """Collections at moments that differ between ranks."""
    moments(world, fault, world.gc, fault.strength, number(fault, "chance", 0.6), 1)


def host_checkpoint(world: World, fault: Fault) -> None:
    """The ranks save state in one step, and again some steps later (`apart`, if given)."""
    world.checkpoint_name = str(fault.detail.get("name", world.checkpoint_name))
    at, apart = int(number(fault, "step", 1)), int(number(fault, "apart", 0))
    for rank in fault.ranks or range(world.size):
        for step in (at, at + apart):
            world.checkpoints[(rank, step % world.steps)] = fault.strength


def host_allocator(world: World, fault: Fault) -> None:
    """Memory is freed and allocated inside steps."""
    moments(world, fault, world.allocations, fault.strength, 1.0, int(number(fault, "pieces", 3)))


def few_microbatches(world: World, fault: Fault) -> None:
    """Too few microbatches for the depth of the pipeline (`strength` of them)."""
    world.set_parallel(microbatches=int(fault.strength))


def more_microbatches(world: World, fault: Fault) -> None:
    """More microbatches of the batch as it is."""
    world.set_parallel(microbatches=int(number(fault, "recommended_microbatches", 4 * fault.strength)))


def stage_imbalance(world: World, fault: Fault) -> None:
    """One stage has `strength` layers more than the others."""
    world.stage_layers[int(number(fault, "stage", 0))] += int(fault.strength)


def balanced_stages(world: World, fault: Fault) -> None:
    """Work spread equally over the stages."""
    share = (sum(world.stage_layers) + int(fault.strength)) / sum(world.stage_layers)
    world.stage_scale = [scale * share for scale in world.stage_scale]


def nearly_full_memory(world: World, fault: Fault) -> None:
    """Memory is nearly exhausted, so the allocator frees and allocates inside steps."""
    world.memory_share = 0.985
    host_allocator(world, fault)


def full_precision(world: World, fault: Fault) -> None:
    """Matmuls in fp32, `strength` times as long."""
    world.fp32_slowdown = fault.strength
    world.set_model(precision="fp32")


def unfused_optimizer(world: World, fault: Fault) -> None:
    """One chain of tiny kernels per tensor, `strength` tensors per layer."""
    world.set_model(optimizer="single", tensors_per_layer=max(1, int(fault.strength)))


def kernel_jitter(world: World, fault: Fault) -> None:
    """Noisier kernels."""
    world.noise = replace(world.noise, kernel=fault.strength)


def slow_first_step(world: World, fault: Fault) -> None:
    """Every rank takes longer in the first step."""
    for rank in range(world.size):
        world.imbalance[(rank, 0)] = world.imbalance.get((rank, 0), 1.0) + fault.strength


def loader_overhead(world: World, fault: Fault) -> None:
    """`__next__` itself takes `strength` microseconds."""
    world.set_loader(overhead_us=fault.strength)


EFFECTS: dict[str, Effect] = rarer_faults.EFFECTS | {
    "straggler.compute": straggler_compute,
    "straggler.host": straggler_host,
    "straggler.imbalance": straggler_imbalance,
    "input.starved": input_starved,
    "input.straggler": input_straggler,
    "input.pageable_copy": pageable_copy,
    "comm.latency_bound": latency_bound,
    "comm.no_overlap": no_overlap,
    "comm.bandwidth_bound": wide_gradients,
    "comm.slow_link": slow_link,
    "comm.sharding": slower_network,
    "host.launch_bound": launch_bound,
    "host.sync": host_sync,
    "host.gc": host_gc,
    "host.checkpoint": host_checkpoint,
    "host.allocator": host_allocator,
    "pipeline.bubble": few_microbatches,
    "pipeline.imbalance": stage_imbalance,
    "memory.headroom": nearly_full_memory,
    "compute.precision": full_precision,
    "compute.unfused_optimizer": unfused_optimizer,
    "quirk.jitter": kernel_jitter,
    "quirk.first_step": slow_first_step,
    "quirk.loader": loader_overhead,
    "quirk.slow_clock": straggler_compute,
    "quirk.gc": host_gc,
    "quirk.recompute": rarer_faults.recompute,
}

REMEDIES: dict[str, Effect] = rarer_faults.REMEDIES | {
    "input.starved": enough_workers,
    "input.pageable_copy": pinned_copy,
    "comm.latency_bound": larger_buckets,
    "comm.no_overlap": slower_network,
    "comm.bandwidth_bound": half_the_bytes,
    "comm.sharding": keep_parameters,
    "pipeline.bubble": more_microbatches,
    "pipeline.imbalance": balanced_stages,
}


def build(
    scenario: Scenario,
    removed: frozenset[int] = frozenset(),
    change: Mapping[str, float] | None = None,
    comm_free: bool = False,
) -> World:
    """The world of a scenario with the faults at the indices `removed` remedied, then `change` applied.

    `change` takes the settings `num_workers`, `bucket_cap_mb`, `microbatches`. Raises KeyError for any other.
    """
    world = healthy_world(scenario)
    disturb(world, scenario)
    for quirk in scenario.quirks:
        EFFECTS[quirk.id](world, quirk)
    for index, fault in enumerate(scenario.faults):
        if index not in removed:
            EFFECTS[fault.id](world, fault)
        elif fault.id in REMEDIES:
            REMEDIES[fault.id](world, fault)
    for setting, value in (change or {}).items():
        SETTINGS[setting](world, value)
    world.comm_free = comm_free
    return world


SETTINGS: dict[str, Callable[[World, float], None]] = {
    "num_workers": lambda world, value: world.set_loader(workers=int(value)),
    "bucket_cap_mb": lambda world, value: world.set_parallel(bucket_mb=float(value), overlap=True),
    "microbatches": lambda world, value: world.set_parallel(microbatches=int(value)),
}
