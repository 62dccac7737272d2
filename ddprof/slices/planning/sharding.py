"""DDP, ZeRO-1/2/3 (= FSDP) and parameters kept after forward for a run's own model: memory by formula, step by replay.

Memory per rank: Psi x (p + g + k), each part divided by N where the stage shards it (ZeRO paper, section 3), plus what
the run kept beside its state. Time: the run's compute, and collectives at the cost of its own messages; an all-reduce
is a reduce-scatter and an all-gather, so either one costs half of it.

At other world sizes each rank keeps its batch; communication and the effect of jitter grow. The ring's share grows as
(n - 1) / n, its latency with the number of members, its rate falls where the group leaves the node; the slowest of N
ranks is later by sigma sqrt(2 ln N) (normal steps), of which the run's own N is in its step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.traffic.cost import TransferCurve, transfer_curve
from ddprof.analyzers.job.traffic.kinds import DEFAULT_BUCKET_MIB, DEFAULT_FIRST_BUCKET_MIB
from ddprof.analyzers.replay.changes.communication.ddp_buckets import gradient_curve, gradient_traffic, reductions
from ddprof.analyzers.replay.price import Pricer
from ddprof.analyzers.summarise import training_of
from ddprof.analyzers.trust.believed import of_step
from ddprof.errors import NoUsableInput
from ddprof.findings import Change
from ddprof.model import element_bytes
from ddprof.report.comparison.compare import scaled_rate
from ddprof.slices.planning.layout import USABLE
from ddprof.units import MIB, format_share

UNKNOWN_ELEMENT_BYTES = 4  # float32, which parameters are unless someone asks for another type
STATES = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "RMSprop": 1, "Adagrad": 1, "SGD": 1, "Lion": 1}
DEFAULT_STATES = 2  # per parameter: an unknown optimizer is taken for Adam
UNIT_BYTES = 100 * MIB  # of parameters per FSDP unit where the run has none: a large layer
FORWARD_SHARE = 1 / 3  # of compute: backward does two matrix products for each of forward
BAND = 0.2  # of the exposed communication, either side


@dataclass(frozen=True)
class Option:
    """One way to shard. `fits` None where the device's memory or the activations are not known."""

    name: str
    formula: str
    state_bytes: float
    fits: bool | None
    step_us: float
    low_us: float
    high_us: float
    exposed_us: float
    is_now: bool


@dataclass(frozen=True)
class ShardingPlan:
    """The options, and their inputs."""

    options: tuple[Option, ...]
    params: float
    ranks: int
    parameter_bytes: float  # per parameter; gradients alike
    optimizer_bytes: float
    other_bytes: float | None  # activations and buffers: the run's peak less its state
    memory_bytes: float | None
    step_us: float
    compute_us: float
    compression: Compression | None


@dataclass(frozen=True)
class Compression:
    """Break-even of 16-bit or PowerSGD gradients: packing must take less than the exposed time saved (us per step)."""

    exposed_us: float
    half_saves_us: float
    tenth_saves_us: float
    half_packing_us: float


def plan_sharding(prices: Pricer) -> ShardingPlan:
    """The plan. Raises NoUsableInput where parameters or data-parallel communication are unknown."""
    measures = prices.measures
    ranks, params, element = _model(measures)
    cost = _cost(measures)
    optimizer = STATES.get(measures.settings.optimizer.name or "", DEFAULT_STATES) * element
    compute_us = prices.step_us((Change("scale_transfer", (), (0.0,)),))
    now = _now(measures)
    memory, other = _memory(measures, params, element, optimizer, ranks, now)
    size = params * element
    units = measures.settings.fsdp.units or max(1, min(64, round(size / UNIT_BYTES)))
    reduce_us = _reduce_exposed_us(prices, cost, size, compute_us)
    gather = _half(cost)
    forward_us, backward_us = (_layered_us(gather, size, units, compute_us, back) for back in (False, True))
    kept_us = _layered_us(gather, size, units, compute_us, True, gathers=False)
    exposed = {
        "DDP": reduce_us,
        "ZeRO-1": reduce_us,
        "ZeRO-2": reduce_us,
        "FSDP, parameters kept after forward": forward_us + kept_us,
        "FSDP / ZeRO-3": forward_us + backward_us,
    }
    step_us = prices.step_us(())
    now_us = float(np.median(measures.optimizer_us))
    whole_us = now_us if now == "DDP" else now_us * ranks  # every stage but DDP updates only its own part
    options = []
    for name, formula, parts in _formulas(element, optimizer, ranks):
        state = params * parts
        reached = compute_us + exposed[name] - now_us + (whole_us if name == "DDP" else whole_us / ranks)
        low_us, high_us = of_step(prices, (), reached, BAND * exposed[name])
        fits = None if memory is None or other is None else state + other <= USABLE * memory
        options.append(Option(name, formula, state, fits, reached, low_us, high_us, exposed[name], is_now=name == now))
    return ShardingPlan(
        tuple(options), params, ranks, element, optimizer, other, memory, step_us, compute_us, _compression(prices),
    )  # fmt: skip


def _model(measures: Measures) -> tuple[int, float, float]:
    captured = measures.settings.parameters
    sizes = [t.group_size for t in measures.comm.traffic if t.role in ("dp", "fsdp_shard", "world", "")]
    ranks = max(sizes, default=0)
    if ranks < 2:
        raise NoUsableInput("no data-parallel group with two ranks or more in this run: nothing to shard")
    if captured.count:
        element = _width(captured.dtype or "")
        return ranks, float(captured.count) * (ranks if captured.sharded else 1), element
    scattered = [t for t in measures.comm.traffic if t.op == "reduce_scatter" and t.total_bytes]
    traffic = gradient_traffic(measures) if not scattered else max(scattered, key=lambda t: t.total_bytes)
    if traffic is None:
        raise NoUsableInput("the number of parameters is not recorded: capture with `ddprof run`")
    element = _communicated_bytes(measures, traffic.op)
    return ranks, traffic.total_bytes / element, element


def _communicated_bytes(measures: Measures, op: str) -> float:
    """Bytes per element in most calls of an operation on the first rank."""
    facts = measures.job.ranks[0]
    dtypes = facts.comms["dtype"][facts.comms["op"] == OP_CODE[op]]
    names = [facts.strings[int(code)].lower() for code in dtypes if 0 <= int(code) < len(facts.strings)]
    most = max(set(names), key=names.count, default="")
    return _width(most)


def _width(dtype: str) -> float:
    return float(element_bytes(dtype) or UNKNOWN_ELEMENT_BYTES)


def _cost(measures: Measures) -> TransferCurve:
    """Cost of an all-reduce by size: measured, or twice a reduce-scatter's."""
    measured = gradient_curve(measures)
    if measured is not None:
        return measured
    limits = execution_of(measures.job).limits
    for traffic in measures.comm.traffic:
        if traffic.op in ("reduce_scatter", "all_gather"):
            curve = transfer_curve(traffic.sizes_bytes, traffic.times_us * 2e3, limits.transfer_prior)
            if curve is not None:
                return curve
    raise NoUsableInput("no collective of gradients or parameters in this run: its links' cost is unknown")


def _half(cost: TransferCurve) -> Callable[[float], float]:
    return lambda size: cost.time_ns(size) / 2e3


def _now(measures: Measures) -> str:
    stage, fsdp = measures.settings.deepspeed.zero_stage, measures.settings.fsdp
    if stage in (1, 2):
        return f"ZeRO-{stage}"
    if stage == 3 or fsdp.version is not None or any(t.role == "fsdp_shard" for t in measures.comm.traffic):
        kept = fsdp.reshard_after_forward is False
        return "FSDP, parameters kept after forward" if kept else "FSDP / ZeRO-3"
    return "DDP"


def _formulas(element: float, optimizer: float, ranks: int) -> list[tuple[str, str, float]]:
    p = g = element
    k, n = optimizer, ranks
    return [
        ("DDP", f"Psi x ({p:g} + {g:g} + {k:g})", p + g + k),
        ("ZeRO-1", f"Psi x ({p:g} + {g:g} + {k:g}/{n})", p + g + k / n),
        ("ZeRO-2", f"Psi x ({p:g} + ({g:g} + {k:g})/{n})", p + (g + k) / n),
        ("FSDP, parameters kept after forward", f"Psi x ({p:g} + ({p:g} + {g:g} + {k:g})/{n})", p + (p + g + k) / n),
        ("FSDP / ZeRO-3", f"Psi x ({p:g} + {g:g} + {k:g})/{n}", (p + g + k) / n),
    ]


def _memory(
    measures: Measures, params: float, element: float, optimizer: float, ranks: int, now: str
) -> tuple[float | None, float | None]:
    """Memory of a device, and the part that the run holds beside its state at the peak; None where not recorded."""
    seen = [f.memory for f in measures.job.ranks if f.memory.get("peak_allocated_bytes")]
    total = measures.settings.device.total_memory_bytes
    total = total or next((m["total_bytes"] for m in seen if m.get("total_bytes")), None)
    if not seen:
        return total, None
    parts = next(p for name, _, p in _formulas(element, optimizer, ranks) if name == now)
    return total, max(0.0, max(float(m["peak_allocated_bytes"]) for m in seen) - params * parts)


def _reduce_exposed_us(prices: Pricer, cost: TransferCurve, size: float, compute_us: float) -> float:
    """Exposed gradient reduction in DDP's default buckets: by the run's own gradient times, else at an even rate."""
    if gradient_traffic(prices.measures) is not None and reductions(prices.measures, prices.graph):
        buckets = (DEFAULT_BUCKET_MIB * MIB, DEFAULT_FIRST_BUCKET_MIB * MIB)
        return max(0.0, prices.step_us((Change("rebucket", (), buckets),)) - compute_us)
    count = max(1.0, size / (DEFAULT_BUCKET_MIB * MIB))
    total_us = count * cost.time_ns(size / count) / 1e3
    return max(total_us / count, total_us - compute_us * (1 - FORWARD_SHARE))


def _layered_us(
    gather: Callable[[float], float], size: float, units: int, compute_us: float, back: bool, gathers: bool = True
) -> float:
    """Exposed time of one pass: all of the first (or last) unit, and what compute cannot hide of the others."""
    moved = gather(size / units) * ((1 if gathers else 0) + (1 if back else 0))
    share = (1 - FORWARD_SHARE) if back else FORWARD_SHARE
    return gather(size / units) + (units - 1) * max(0.0, moved - compute_us * share / units)


def _compression(prices: Pricer) -> Compression | None:
    traffic = gradient_traffic(prices.measures)
    if traffic is None:
        return None
    step_us = prices.step_us(())
    free_us = prices.step_us((Change("scale_transfer", (), (0.0,), traffic.role),))
    half, tenth = (step_us - prices.step_us((Change("scale_volume", (), (share,)),)) for share in (0.5, 0.1))
    packing_us = traffic.total_bytes / MIB * execution_of(prices.measures.job).limits.packing_ns_per_mib / 1e3
    return Compression(step_us - free_us, max(0.0, half), max(0.0, tenth), packing_us)


WORLDS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
NEAR_BAND, FAR_BAND = 0.10, 0.25  # of the step; far: the group leaves the node, whose network the run did not use


@dataclass(frozen=True)
class WorldPoint:
    """The step (us) of a world of `world` ranks, with range; efficiency: throughput per rank against the run's own.

    `in_groups_us`, `by_server_us`: the step with gradients summed inside nodes first, or by one rank; None in one node.
    """

    world: int
    step_us: float
    low_us: float
    high_us: float
    efficiency: float
    in_groups_us: float | None
    by_server_us: float | None


@dataclass(frozen=True)
class ScalePlan:
    """Data-parallel scaling of a run. `jitter_us`: spread of one rank's own work from step to step."""

    points: tuple[WorldPoint, ...]
    world: int
    step_us: float
    jitter_us: float
    per_node: int
    node_factor: float
    assumptions: tuple[str, ...]


def scale_out(prices: Pricer, worlds: tuple[int, ...], per_node: int, node_factor: float) -> ScalePlan:
    """Plan. `node_factor`: slowdown between nodes against its links (>= 1). Raises NoUsableInput without traffic."""
    measures = prices.measures
    traffic, curve = gradient_traffic(measures), gradient_curve(measures)
    if traffic is None or curve is None:
        raise NoUsableInput("no all-reduce of gradients between data-parallel ranks in this run: nothing to scale")
    now, step_us = traffic.group_size, prices.step_us(())
    size = max(traffic.mean_bytes, 1.0)
    latency = min(curve.line.alpha_ns / curve.time_ns(size), 1.0)
    jitter_us = _jitter_us(prices)

    def step_of(moved: float, rounds: float, late_us: float) -> float:
        factor = latency * rounds / log(2 * now) + (1 - latency) * moved / _ring(now)
        scaled = (Change("scale_transfer", (), (factor,), traffic.role),)
        return max(prices.step_us(scaled) + late_us, 1e-9)

    points = []
    for world in sorted({*worlds, now}):
        leaves = world > per_node and not (traffic.crosses_hosts or now > per_node)
        slower, nodes = node_factor if leaves else 1.0, -(-world // per_node)
        late_us = jitter_us * (_expected_maximum(world) - _expected_maximum(now))
        reached = step_of(slower * _ring(world), log(2 * world), late_us) if world != now else step_us
        low_us, high_us = of_step(prices, (), reached, (FAR_BAND if leaves else NEAR_BAND) * abs(reached - step_us))
        ways = (
            (_ring(per_node) + slower * _ring(nodes), log(4 * world)),
            (2 * (per_node - 1 + slower * (world - per_node)), log(2 * world)),
        )
        in_groups_us, by_server_us = (step_of(*way, late_us) if leaves else None for way in ways)
        points.append(WorldPoint(world, reached, low_us, high_us, step_us / reached, in_groups_us, by_server_us))
    return ScalePlan(
        points=tuple(points),
        world=now,
        step_us=step_us,
        jitter_us=jitter_us,
        per_node=per_node,
        node_factor=node_factor,
        assumptions=(
            "every rank keeps its batch (weak scaling) and its loader keeps up"
            + _rate_words(measures.job, max(worlds) / now),
            f"a call's latency grows with log(ranks); it is {format_share(latency)} of a typical call here",
            f"links between nodes are {node_factor:g} times slower than this run's; {per_node} ranks per node, which "
            f"share its link: summing inside nodes first moves bytes faster with fewer than {node_factor:g} nodes",
            f"a rank's own work varies by {jitter_us / 1e3:.2g} ms from step to step, independently of the others",
        ),
    )


def _ring(ranks: int) -> float:
    """Bytes over each link of a ring of ranks, in sizes of the message that they sum (Patarasuk and Yuan 2009)."""
    return 2 * (ranks - 1) / ranks


def _rate_words(job: JobFacts, ratio: float) -> str:
    """The learning rate for a batch larger by `ratio`, in words; "" where the run's is not known."""
    training = training_of(job)
    if not training.learning_rate:
        return ""
    usual, rule = scaled_rate(training.learning_rate, ratio, training.optimizer)
    return (
        f"; of {ratio:g} times the samples per step the learning rate {training.learning_rate:g} is {usual:.3g} {rule}"
    )


def _expected_maximum(count: int) -> float:
    """Expected maximum of `count` standard normals, to leading order."""
    return sqrt(2 * log(count)) if count > 1 else 0.0


def _jitter_us(prices: Pricer) -> float:
    """Standard deviation over steps of a rank's compute beyond the ranks' common variation; median over ranks."""
    slowdown = prices.measures.work
    work_us = slowdown.per_step * (slowdown.time_us / np.maximum(np.nanmean(slowdown.per_step, axis=1), 1e-9))[:, None]
    if work_us.shape[1] < 3 or not np.isfinite(work_us).all():
        return 0.0
    return float(np.median(work_us.std(axis=1, ddof=1)))
