"""A layout of a model over devices: its memory, its step time, and the part without compute.

Assumptions, all named: matrix products run at `efficiency` of the peak; other work than these and fused attention reads
and writes each activation `PASSES` times; tensor-parallel collectives are exposed, FSDP's hidden behind the
neighbouring layer, gradient reduction behind the last microbatch's backward; pipelines run 1F1B with interleaved
chunks.

Formulas of the model: ZeRO (Rajbhandari et al. 2020) section 3 for state, Korthikanti et al. 2022 equations 1 to 6 for
activations, Narayanan et al. 2021 equation 3 for operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log2, sqrt

from ddprof.errors import NoUsableInput, UsageError
from ddprof.hardware import gpu_names, gpu_row

LINK_EFFICIENCY = 0.8  # of the specification, as NCCL reaches for large messages (80 to 90 %)
LATENCY_S, HOP_LATENCY_S = 20e-6, 10e-6  # a call in a node, and each doubling of the number of nodes


@dataclass(frozen=True)
class Cluster:
    """Nodes of one kind of device. Rates are bytes or operations per second, one direction, as specified."""

    gpu: str
    flops: float
    memory_bytes: float
    memory_bytes_per_s: float
    link_bytes_per_s: float  # between devices of a node, per device
    node_bytes_per_s: float  # all network ports of a node
    per_node: int

    def rate(self, members: int, members_per_node: int) -> float:
        """Send rate of a ring's member, bytes/s: a group across nodes has its devices' share of a node's ports."""
        if members <= members_per_node:
            return self.link_bytes_per_s * LINK_EFFICIENCY
        share = self.node_bytes_per_s * members_per_node / self.per_node
        return min(self.link_bytes_per_s, share) * LINK_EFFICIENCY

    def gather_s(self, size_bytes: float, members: int, members_per_node: int) -> float:
        """Time (s) of an all-gather or reduce-scatter of `size_bytes` in all: (n - 1) / n of it passes each member."""
        if members < 2 or size_bytes <= 0:
            return 0.0
        nodes = max(1.0, members / members_per_node)
        latency = LATENCY_S + HOP_LATENCY_S * log2(nodes)
        return latency + (members - 1) / members * size_bytes / self.rate(members, members_per_node)

    def reduce_s(self, size_bytes: float, members: int, members_per_node: int) -> float:
        """Time (s) of an all-reduce: a reduce-scatter and an all-gather."""
        return 2.0 * self.gather_s(size_bytes, members, members_per_node)


def cluster(name: str, per_node: int | None = None, node_gbps: float | None = None) -> Cluster:
    """A known device in its usual nodes; `node_gbps`: all ports of a node, gigabit per second. Raises UsageError."""
    row = gpu_row(name)
    if row is None:
        raise UsageError(f"--gpu {name}: unknown; known: {', '.join(gpu_names())}")
    return Cluster(
        gpu=str(row["name"]),
        flops=float(row["flops"]),
        memory_bytes=float(row["memory_bytes"]),
        memory_bytes_per_s=float(row["memory_bytes_per_s"]),
        link_bytes_per_s=float(row["link_bytes_per_s"]),
        node_bytes_per_s=node_gbps * 1e9 / 8 if node_gbps else float(row["node_bytes_per_s"]),
        per_node=per_node or int(row["per_node"]),
    )


PARAMETER_BYTES = 2.0  # bf16
GRADIENT_BYTES = 2.0
ADAM_BYTES = 12.0  # fp32 parameter, momentum, variance (ZeRO's K)
# Bytes of optimizer state per parameter beside the 2 + 2 of bf16 parameter and gradient.
OPTIMIZERS = {"adam": ADAM_BYTES, "adam8bit": 6.0, "adam-bf16": 4.0, "sgd-momentum": 8.0, "sgd": 4.0}
RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True)
class Shape:
    """A decoder with fused attention, which stores no score matrix: `params` is the total; `seq` tokens a sequence."""

    params: float
    layers: int
    hidden: int
    seq: int
    vocab: int = 51_200
    optimizer_bytes: float = ADAM_BYTES

    def forward_flops(self) -> float:
        """FLOPs of one sequence: matrix products of every layer, attention, and the output layer."""
        tokens, h = float(self.seq), float(self.hidden)
        blocks = 2.0 * (self.params - self.vocab * h)  # 2 per parameter and token
        attention = 4.0 * self.layers * self.seq * h
        return tokens * (blocks + attention + 2.0 * self.vocab * h)

    def model_flops(self) -> float:
        """FLOPs of one sequence, forward and backward, without recomputation: the basis of MFU."""
        return 3.0 * self.forward_flops()

    def executed_flops(self, recompute: str) -> float:
        """FLOPs including recomputation in backward: all of forward, or (selective) only attention's scores."""
        if recompute == "full":
            return 4.0 * self.forward_flops()
        again = 4.0 * self.layers * self.seq * float(self.seq) * self.hidden if recompute == "selective" else 0.0
        return self.model_flops() + again

    def layer_activation_bytes(self, micro: int, tensor: int, recompute: str) -> float:
        """Activation bytes of one layer per rank and microbatch of `micro` sequences; tensor ranks split sequences."""
        return (2.0 if recompute == "full" else 34.0) * self.seq * micro * self.hidden / tensor


def state_bytes(params: float, sharding: str, ranks: int, optimizer_bytes: float = ADAM_BYTES) -> float:
    """Bytes of parameters, gradients and optimizer state per rank under "ddp", "zero1", "zero2", "zero3" (= FSDP).

    ZeRO's Psi x (2 + 2 + K), each part divided by `ranks` where the stage shards it.
    """
    parameter = PARAMETER_BYTES / (ranks if sharding == "zero3" else 1)
    gradient = GRADIENT_BYTES / (ranks if sharding in ("zero2", "zero3") else 1)
    optimizer = optimizer_bytes / (ranks if sharding != "ddp" else 1)
    return params * (parameter + gradient + optimizer)


def parameters_of(layers: int, hidden: int, vocab: int) -> float:
    """12 L h^2 for the blocks and V h for the embedding (Narayanan et al. 2021, equation 2, small terms left out)."""
    return 12.0 * layers * hidden * hidden + vocab * hidden


EFFICIENCY = 0.65  # of peak in wide products; fitted, with HALF_WIDTH, to tests/slices/planning/published.py
HALF_WIDTH = 700.0  # hidden / sqrt(tensor ranks) at which products reach half of that: narrow ones fill badly
PASSES = 2.0  # over the 34 bytes per hidden unit and token that a layer's operators leave behind
USABLE = 0.92  # of device memory: the rest is context, fragments, communication buffers
BAND = 0.15  # of the predicted step: holds every run of tests/slices/planning/published.py


@dataclass(frozen=True)
class Layout:
    """Degrees of data, tensor and pipeline parallelism, microbatch, chunks per stage, sharding and recomputation.

    `shard`: ranks that a data-parallel group's state is sharded over (HSDP: fewer than `data`).
    """

    data: int
    tensor: int = 1
    pipeline: int = 1
    micro: int = 1
    chunks: int = 1
    sharding: str = "ddp"
    shard: int = 1
    recompute: str = "none"

    @property
    def name(self) -> str:
        """Name of the sharding (DDP, ZeRO-1, FSDP, HSDP) with the degrees."""
        kinds = {"ddp": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "FSDP / ZeRO-3"}
        kind = "HSDP" if self.sharding == "zero3" and self.shard < self.data else kinds[self.sharding]
        parts = [f"TP {self.tensor}"] * (self.tensor > 1) + [f"PP {self.pipeline}"] * (self.pipeline > 1)
        return ", ".join([f"{kind} {self.data}", *parts])


@dataclass(frozen=True)
class Estimate:
    """A layout's cost. Times in seconds per step, memory in bytes per device."""

    layout: Layout
    state_bytes: float
    activation_bytes: float
    fits: bool
    step_s: float
    compute_s: float
    tensor_s: float  # exposed tensor-parallel collectives
    bubble_s: float
    data_s: float  # exposed gather and reduction over data-parallel ranks
    optimizer_s: float
    mfu: float

    @property
    def memory_bytes(self) -> float:
        """Bytes of state and activations."""
        return self.state_bytes + self.activation_bytes


def estimate(shape: Shape, on: Cluster, layout: Layout, batch: int, efficiency: float = EFFICIENCY) -> Estimate:
    """The cost of a layout for `batch` sequences a step. Every sum is per device."""
    model = layout.tensor * layout.pipeline
    microbatches = max(1, batch // (layout.data * layout.micro))
    stage_layers = shape.layers / layout.pipeline
    params = shape.params / model
    state = state_bytes(params, layout.sharding, layout.shard, shape.optimizer_bytes)
    if layout.sharding == "zero3":
        state += 2 * 2.0 * params / stage_layers  # two units gathered at a time
    activation = _activation_bytes(shape, layout, stage_layers, microbatches)
    compute_s = _compute_s(shape, on, layout, microbatches, efficiency)
    tensor_s = _tensor_s(shape, on, layout, stage_layers) * microbatches
    sends_s = _sends_s(shape, on, layout) * microbatches
    data_s = _data_s(on, layout, params, stage_layers, microbatches, compute_s + tensor_s)
    bubble_s = (compute_s + tensor_s + sends_s) * (layout.pipeline - 1) / (microbatches * layout.chunks)
    owned = params / (layout.shard if layout.sharding != "ddp" else 1)
    optimizer_s = owned * (2 * shape.optimizer_bytes + 4) / (on.memory_bytes_per_s * 0.8)
    step_s = compute_s + tensor_s + sends_s + bubble_s + data_s + optimizer_s
    return Estimate(
        layout=layout,
        state_bytes=state,
        activation_bytes=activation,
        fits=state + activation <= USABLE * on.memory_bytes,
        step_s=step_s,
        compute_s=compute_s,
        tensor_s=tensor_s + sends_s,
        bubble_s=bubble_s,
        data_s=data_s,
        optimizer_s=optimizer_s,
        mfu=batch * shape.model_flops() / (on.flops * layout.data * model * step_s),
    )


def _activation_bytes(shape: Shape, layout: Layout, stage_layers: float, microbatches: int) -> float:
    """Activations on the first stage, bytes: one microbatch per stage (1F1B), and (p - 1) / (p v) more with chunks."""
    held = min(layout.pipeline, microbatches)
    extra = 1 + (layout.pipeline - 1) / (layout.pipeline * layout.chunks) if layout.chunks > 1 else 1.0
    kept = shape.layer_activation_bytes(layout.micro, layout.tensor, layout.recompute) * stage_layers * held * extra
    working = shape.layer_activation_bytes(layout.micro, layout.tensor, "none") if layout.recompute == "full" else 0.0
    logits = 6.0 * shape.seq * layout.micro * shape.vocab / layout.tensor if layout.pipeline == 1 else 0.0
    return kept + working + logits


def _compute_s(shape: Shape, on: Cluster, layout: Layout, microbatches: int, efficiency: float) -> float:
    sequences = microbatches * layout.micro
    share = sequences / (layout.tensor * layout.pipeline)
    width = shape.hidden / sqrt(layout.tensor)
    reached = efficiency * width / (width + HALF_WIDTH)
    products = shape.executed_flops(layout.recompute) * share / (on.flops * reached)
    sweeps = 4.0 if layout.recompute == "full" else 3.0  # forward, backward twice, forward again
    moved = 34.0 * shape.seq * shape.hidden * shape.layers * PASSES * sweeps / 3.0 * share
    return products + moved / on.memory_bytes_per_s


def _tensor_s(shape: Shape, on: Cluster, layout: Layout, stage_layers: float) -> float:
    """Tensor parallelism, s: two all-reduces a layer in forward and two in backward; recomputing repeats forward's."""
    size = 2.0 * shape.seq * layout.micro * shape.hidden
    calls = 6.0 if layout.recompute == "full" else 4.0
    return calls * stage_layers * on.reduce_s(size, layout.tensor, on.per_node)


def _sends_s(shape: Shape, on: Cluster, layout: Layout) -> float:
    """Pipeline messages, s: activations forward and gradients back, per chunk, split by tensor ranks; half hidden."""
    if layout.pipeline == 1:
        return 0.0
    size = 2.0 * shape.seq * layout.micro * shape.hidden / layout.tensor
    rate = on.rate(2, 2 if layout.tensor * 2 <= on.per_node else 1)
    return 0.5 * 2.0 * layout.chunks * size / rate


def _behind(transfer_s: float, backward_s: float, layers: float) -> float:
    """Exposed part of a transfer that runs layer by layer beside the backward pass: the last layer's, or the excess."""
    return max(transfer_s / max(layers, 1.0), transfer_s - backward_s)


def _data_s(on: Cluster, layout: Layout, params: float, stage_layers: float, microbatches: int, busy_s: float) -> float:
    """Exposed data-parallel communication, s: gradients after the last backward, FSDP's gathers layer by layer."""
    if layout.data == 1:
        return 0.0
    near = max(1, on.per_node // layout.tensor)
    backward_s = busy_s / microbatches * 2 / 3
    if layout.sharding != "zero3":
        gather_s = on.gather_s(2.0 * params, layout.data, near)
        if layout.sharding == "ddp":
            return _behind(2 * gather_s, backward_s, stage_layers)
        # ZeRO-1 and 2 gather the updated parameters once nothing is left to hide it; 2 scatters every microbatch.
        times = microbatches if layout.sharding == "zero2" else 1
        return _behind(gather_s, backward_s, stage_layers) * times + gather_s
    unit = params / stage_layers
    gather_s = on.gather_s(2.0 * unit, layout.shard, near)
    scatter_s = gather_s
    if layout.shard < layout.data:  # HSDP: shards are reduced across the replicas
        scatter_s += on.reduce_s(2.0 * unit / layout.shard, layout.data // layout.shard, 1)
    layer_s = busy_s / microbatches / stage_layers
    forward = gather_s + (stage_layers - 1) * max(0.0, gather_s - layer_s / 3)
    backward = scatter_s + (stage_layers - 1) * max(0.0, gather_s + scatter_s - layer_s * 2 / 3)
    return (forward + backward) * microbatches


MICRO = (1, 2, 4, 8)
CHUNKS = (1, 2, 3, 4)
MAX_STAGES = 64  # of a pipeline


def layouts(shape: Shape, on: Cluster, world: int, batch: int) -> Iterator[Layout]:
    """Layouts whose degrees divide the model, the batch and the devices; tensor ranks stay in a node."""
    for tensor in (t for t in (1, 2, 4, 8, 16) if t <= on.per_node and world % t == 0 and shape.hidden % t == 0):
        for pipeline in (p for p in range(1, MAX_STAGES + 1) if (world // tensor) % p == 0 and shape.layers % p == 0):
            data = world // tensor // pipeline
            for micro in (m for m in MICRO if batch % (data * m) == 0):
                for chunks in _chunks(shape, pipeline, batch // (data * micro)):
                    for sharding, shard in _shardings(on, data, tensor, pipeline):
                        for recompute in RECOMPUTE:
                            yield Layout(data, tensor, pipeline, micro, chunks, sharding, shard, recompute)


def _chunks(shape: Shape, pipeline: int, microbatches: int) -> list[int]:
    """Chunks per stage: interleaving needs whole layers per chunk and microbatches in multiples of the stages."""
    if pipeline == 1:
        return [1]
    return [c for c in CHUNKS if c == 1 or (shape.layers % (pipeline * c) == 0 and microbatches % pipeline == 0)]


def _shardings(on: Cluster, data: int, tensor: int, pipeline: int) -> list[tuple[str, int]]:
    if data == 1:
        return [("ddp", 1)]
    shardings = [("ddp", 1), ("zero1", data)]
    if pipeline == 1:  # stages 2 and 3 would reduce or gather for every microbatch of a pipeline
        shardings += [("zero2", data), ("zero3", data)]
        near = max(1, on.per_node // tensor)
        if near < data and data % near == 0 and near > 1:
            shardings.append(("zero3", near))
    return shardings


def search(shape: Shape, on: Cluster, world: int, batch: int, efficiency: float = EFFICIENCY) -> list[Estimate]:
    """Every layout's estimate: fitting ones first, the fastest first. Raises NoUsableInput where none divides."""
    estimates = [estimate(shape, on, layout, batch, efficiency) for layout in layouts(shape, on, world, batch)]
    if not estimates:
        raise NoUsableInput(
            f"a batch of {batch} sequences and {shape.layers} layers cannot be divided over {world} devices"
        )
    return sorted(estimates, key=lambda e: (not e.fits, e.step_s if e.fits else e.memory_bytes))


def best_by_kind(estimates: list[Estimate]) -> list[Estimate]:
    """The best of each sharding with each use of tensor and pipeline ranks, in the order of `estimates`."""
    kinds: dict[tuple[str, bool, bool, bool], Estimate] = {}
    for item in estimates:
        one = item.layout
        key = (one.sharding, one.shard < one.data and one.sharding == "zero3", one.tensor > 1, one.pipeline > 1)
        kinds.setdefault(key, item)
    return list(kinds.values())
