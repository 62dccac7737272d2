"""Effects of the rarer faults, and their remedies: stalls inside calls, preprocessing, hot shards, evaluation and
Python of the script on one rank or all, FSDP units and prefetching, a slow link of a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.oracle.draws import generator
from benchmarks.oracle.spec import Fault
from benchmarks.oracle.world import World

Effect = Callable[[World, Fault], None]
STALLED_OPERATORS = 60  # stalls fall on the first of a step's operators; every model has as many
FINDINGS = {
    "input.preprocessing": "input.starved",
    "imbalance.hot_expert": "straggler.imbalance",
    "imbalance.hot_table": "straggler.imbalance",
    "host.evaluation": "host.checkpoint",
    "memory.recompute": "memory.headroom",
    "script.one_rank": "straggler.host",
    "fsdp.nested": "comm.latency_bound",
    "fsdp.no_prefetch": "comm.no_overlap",
    "pipeline.slow_link": "comm.slow_link",
}
ACCEPTABLE = {
    "host.stalled": ("host.stalled", "straggler.host", "straggler.imbalance"),
    "input.preprocessing": ("input.starved", "host.script"),
    "imbalance.hot_expert": ("straggler.imbalance", "straggler.compute", "input.unsharded"),
    "imbalance.hot_table": ("straggler.imbalance", "straggler.compute", "input.unsharded"),
    "host.evaluation": (
        "host.checkpoint", "straggler.imbalance", "straggler.host", "straggler.unexplained", "host.script",
    ),
    "memory.recompute": ("memory.headroom",),
    "fsdp.nested": ("comm.latency_bound",),
    "fsdp.no_prefetch": ("comm.no_overlap",),
    "host.script": ("host.script",),
    "script.one_rank": ("straggler.host", "straggler.unexplained", "host.script", "straggler.imbalance"),
    "pipeline.slow_link": ("comm.slow_link",),
    "comm.barrier": ("comm.barrier", "host.sync"),
}  # fmt: skip

# Words of which one is in the setting of the first fix, where it is the one that helps most.
FIXES = {
    "fsdp.nested": ("units",),
    "fsdp.no_prefetch": ("prefetch",),
    "comm.sharding": ("reshard", "hybrid"),
    "memory.recompute": ("checkpointing",),
    "imbalance.hot_expert": ("expert",),
    "imbalance.hot_table": ("table",),
}


def stalled_calls(world: World, fault: Fault) -> None:
    """`strength` microseconds a step in a few stalls inside calls, at moments that differ between ranks and steps."""
    pieces = int(float(fault.detail.get("pieces", 3)))
    for rank in fault.ranks or range(world.size):
        for step in range(world.steps):
            draw = generator(world.seed, "stalled", rank, step)
            operators = draw.choice(STALLED_OPERATORS, pieces, replace=False)
            sizes = draw.uniform(0.4, 1.6, pieces) * fault.strength / pieces
            world.call_stalls[(rank, step)] = [(1 + int(o), float(us)) for o, us in zip(operators, sizes, strict=True)]


def preprocessing(world: World, fault: Fault) -> None:
    """Batches are prepared in the training process."""
    world.preprocess_us = fault.strength


def hot_shard(world: World, fault: Fault) -> None:
    """Some ranks' expert or table gets `1 + strength` times the tokens or rows of the others; all together get as many
    as without the fault.
    """
    mean = 1.0 + fault.strength * len(fault.ranks) / world.size
    for rank in range(world.size):
        world.hot[rank] = (1.0 + fault.strength * (rank in fault.ranks)) / mean


def evaluation(world: World, fault: Fault) -> None:
    """One rank evaluates `strength` batches at the end of every `every`-th step."""
    every = int(float(fault.detail.get("every", 2)))
    for rank in fault.ranks:
        for step in range(every - 1, world.steps, every):
            world.evaluations[(rank, step)] = max(1, int(fault.strength))


def own_python(world: World, fault: Fault) -> None:
    """The script runs `strength` microseconds of Python behind every step, on all ranks or on some."""
    for rank in fault.ranks or range(world.size):
        world.scripts[rank] = fault.strength


def barriers(world: World, fault: Fault) -> None:
    """The script calls `strength` barriers in every step, before layers that lie evenly apart."""
    count, layers = max(1, int(fault.strength)), world.model.layers
    for number in range(count):
        layer = number * layers // count if count < layers else number % layers
        world.barriers[layer] = world.barriers.get(layer, 0) + 1


def nested_units(world: World, fault: Fault) -> None:
    """Every layer is wrapped in several units, and a collective has `strength` latency."""
    nested_remedied(world, fault)
    world.set_parallel(units=int(float(fault.detail.get("units", 4))))


def nested_remedied(world: World, fault: Fault) -> None:
    """One unit per layer at unchanged latency."""
    world.set_cluster(intra_alpha_us=fault.strength, inter_alpha_us=fault.strength)


def no_prefetch(world: World, fault: Fault) -> None:
    """All-gathers start when their layer needs them, over links `strength` times slower."""
    prefetch_again(world, fault)
    world.set_parallel(prefetch=False)


def prefetch_again(world: World, fault: Fault) -> None:
    """Prefetching over unchanged links."""
    cluster = world.cluster
    world.set_cluster(intra_gbps=cluster.intra_gbps / fault.strength, inter_gbps=cluster.inter_gbps / fault.strength)


def recompute(world: World, fault: Fault) -> None:
    """Every `every`-th layer is computed again in backward, with a share `memory` of the memory used and `kept` of it
    needed to keep all that is computed again.
    """
    every = int(float(fault.detail.get("every", 1)))
    world.set_model(recompute=every)
    world.memory_share = float(fault.detail["memory"])
    world.activations_share = float(fault.detail["kept"]) / -(-world.model.layers // every)


def slow_stage_link(world: World, fault: Fault) -> None:
    """Messages between two neighbours of a pipeline take longer."""
    low, high = sorted(fault.ranks)
    world.pair_scale[(low, high)] = 1.0 + fault.strength


EFFECTS: dict[str, Effect] = {
    "host.stalled": stalled_calls,
    "input.preprocessing": preprocessing,
    "imbalance.hot_expert": hot_shard,
    "imbalance.hot_table": hot_shard,
    "host.evaluation": evaluation,
    "host.script": own_python,
    "script.one_rank": own_python,
    "comm.barrier": barriers,
    "memory.recompute": recompute,
    "fsdp.nested": nested_units,
    "fsdp.no_prefetch": no_prefetch,
    "pipeline.slow_link": slow_stage_link,
}
REMEDIES: dict[str, Effect] = {"fsdp.nested": nested_remedied, "fsdp.no_prefetch": prefetch_again}
