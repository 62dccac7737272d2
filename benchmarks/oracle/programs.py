"""Programs of a rank's step under each parallelism, as the frameworks run them."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.oracle.comm import ELEMENT_BYTES, collective
from benchmarks.oracle.device import DeviceOp
from benchmarks.oracle.finish import finish
from benchmarks.oracle.loader import BatchQueue
from benchmarks.oracle.pipeline import pipeline_step
from benchmarks.oracle.rank import BACKWARD, MAIN, Program, Rank
from benchmarks.oracle.step import (
    GRADIENT_BYTES,
    backward_layer,
    boundary,
    copy_in,
    embedding_backward,
    forward_layer,
    forward_operators,
    head_backward,
    head_forward,
    item,
    load,
    zero_grad,
)

MIB = 1024.0 * 1024.0
DEFAULT_BUCKET_MB = 25.0
StepProgram = Callable[[Rank, BatchQueue], Program]


class Buckets:
    """DDP's reducer: gradients fill buckets in the order backward makes them; a full bucket is reduced at once."""

    def __init__(self, rank: Rank, active: bool) -> None:
        parallel = rank.world.parallel
        self._rank, self._active = rank, active
        self._cap = parallel.bucket_mb * MIB / GRADIENT_BYTES
        first = parallel.first_bucket_mb if parallel.bucket_mb == DEFAULT_BUCKET_MB else parallel.bucket_mb
        self._next_cap = first * MIB / GRADIENT_BYTES
        self._filled = 0.0
        self._late: list[int] = []
        self.issued: list[DeviceOp] = []

    def ready(self, elems: int) -> None:
        """Gradients of `elems` parameters are ready."""
        if not self._active:
            return
        self._filled += elems
        while self._filled >= self._next_cap:
            self._close(self._next_cap)
            self._filled -= self._next_cap
            self._next_cap = self._cap

    def finish(self) -> None:
        """Backward is over: reduce what is left, and what was not allowed to overlap."""
        if not self._active:
            return
        if self._filled >= 1.0:
            self._close(self._filled)
        late, self._late = self._late, []
        for elems in late:
            self._issue(elems)

    def _close(self, elems: float) -> None:
        if self._rank.world.parallel.overlap:
            self._issue(int(elems))
        else:
            self._late.append(int(elems))

    def _issue(self, elems: int) -> None:
        self._rank.thread = BACKWARD
        dtype = self._rank.world.gradient_dtype
        elems = int(elems * GRADIENT_BYTES / ELEMENT_BYTES[dtype])  # the same bytes
        op = collective(self._rank, "dp", "allreduce", elems, dtype)
        if op is not None:
            self.issued.append(op)


def wait_all(rank: Rank, issued: list[DeviceOp]) -> None:
    """The main thread makes the compute stream wait for what backward issued."""
    rank.thread = MAIN
    for op in issued:
        rank.wait_on_stream(op)
    rank.t += rank.operator_us(1.5)


def forward_annotation(rank: Rank, start: float, name: str) -> None:
    """The range torch records around the wrapper's forward."""
    rank.record("user_annotation", name, start, rank.t)


def ddp_step(rank: Rank, queue: BatchQueue) -> Program:
    """DistributedDataParallel (and DP inside a TP x DP mesh), with accumulation under `no_sync`."""
    model = rank.world.model
    yield from load(rank, queue)
    zero_grad(rank)
    for micro in range(model.accumulation):
        if micro:
            yield from load(rank, queue) if model.batch_per_micro_step else copy_in(rank)
        start = rank.t
        rank.t += rank.operator_us(5.5)
        for layer in range(model.layers):
            yield from forward_layer(rank, layer)
        forward_annotation(rank, start, "DistributedDataParallel.forward")
        head_forward(rank)
        if model.sync == "item_mid":
            yield from item(rank)
        buckets = Buckets(rank, active=micro == model.accumulation - 1)
        head_backward(rank, ready=buckets.ready)
        for layer in reversed(range(model.layers)):
            backward_layer(rank, layer, ready=buckets.ready)
        embedding_backward(rank, ready=buckets.ready)
        buckets.finish()
        wait_all(rank, buckets.issued)
    yield from finish(rank)


class Gathers:
    """FSDP's parameter all-gathers, one unit ahead of compute when prefetching."""

    def __init__(self, rank: Rank, units: int, elems: int) -> None:
        self._rank, self._units, self._elems = rank, units, elems
        self._issued: dict[int, DeviceOp | None] = {}

    def need(self, position: int) -> None:
        """Compute is about to use the position-th unit: gather it, prefetch the next, wait for it."""
        ahead = 1 if self._rank.world.parallel.prefetch else 0
        for at in range(position, min(position + ahead, self._units - 1) + 1):
            if at not in self._issued:
                self._issued[at] = collective(self._rank, "shard", "_allgather_base", self._elems)
        op = self._issued[position]
        if op is not None:
            self._rank.wait_on_stream(op)


def fsdp_step(rank: Rank, queue: BatchQueue) -> Program:
    """FullyShardedDataParallel, or HSDP when there is a replicate group."""
    model, parallel = rank.world.model, rank.world.parallel
    yield from load(rank, queue)
    zero_grad(rank)
    start = rank.t
    order, units = list(range(model.layers)), parallel.units
    gathers = Gathers(rank, model.layers * units, model.params_per_layer // units)
    rank.t += rank.operator_us(3.0)
    for position, layer in enumerate(order):
        yield from boundary(rank, layer)
        for unit in range(units):
            gathers.need(position * units + unit)
            forward_operators(rank, layer, part=(unit, units))
    forward_annotation(rank, start, "FullyShardedDataParallel.forward")
    head_forward(rank)
    if model.sync == "item_mid":
        yield from item(rank)
    head_backward(rank)
    order.reverse()
    issued: list[DeviceOp] = []
    again = Gathers(rank, model.layers * units, model.params_per_layer // units) if parallel.reshard else None
    for position, layer in enumerate(order):
        for unit in range(units):
            rank.thread = BACKWARD
            if again is not None and position > 0:  # the last layer of forward is kept
                again.need(position * units + unit)
            backward_layer(rank, layer, part=(unit, units))
            issued += _reduce_unit(rank)
    wait_all(rank, issued)
    yield from finish(rank, share=1.0 / len(rank.group("shard").ranks) ** 0.5)


def _reduce_unit(rank: Rank) -> list[DeviceOp]:
    """Reduce-scatter a unit's gradients, then all-reduce them across replicas."""
    rank.thread = BACKWARD
    elems = rank.world.model.params_per_layer // rank.world.parallel.units
    scattered = collective(rank, "shard", "_reduce_scatter_base", elems)
    if "replicate" not in rank.layout.groups:
        return [scattered] if scattered is not None else []
    reduced = collective(rank, "replicate", "allreduce", elems // len(rank.group("shard").ranks), after=scattered)
    return [op for op in (scattered, reduced) if op is not None]


def program_for(kind: str) -> StepProgram:
    """The step of a parallelism."""
    return {"ddp": ddp_step, "tpdp": ddp_step, "fsdp": fsdp_step, "hsdp": fsdp_step, "pp": pipeline_step}[kind]
