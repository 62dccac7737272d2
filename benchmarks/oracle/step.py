"""The parts every training step is made of: batch, forward, backward, loss, optimizer, step mark."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.oracle.comm import collective
from benchmarks.oracle.compiled import GRAPHS, begin_region, end_region, path_of
from benchmarks.oracle.device import DeviceOp
from benchmarks.oracle.layers import (
    EMBEDDING_BACKWARD,
    EXCHANGE_AFTER,
    HEAD_BACKWARD,
    HEAD_FORWARD,
    TP_AFTER_BACKWARD,
    TP_AFTER_FORWARD,
    Operator,
    backward,
    forward,
)
from benchmarks.oracle.loader import BatchQueue, next_batch
from benchmarks.oracle.rank import BACKWARD, COMPUTE, MAIN, SYNC_RETURN_US, Kernel, Occupant, Program, Rank

PINNED_GBPS, PAGEABLE_GBPS, DTOH_GBPS = 23.7, 5.5, 23.7
COPY_BYTES_PER_US = 1e3
GRADIENT_BYTES = 2.0
PREPROCESSING = ("aten::_upsample_bilinear2d_aa", "aten::to", "aten::sub", "aten::div", "aten::stack")
GRAPH_OPERATORS = 1.5  # what launching a graph costs the host, in operators
PREPROCESSED_PARTS = 6  # frames or images of a batch
OnGradient = Callable[[int], None]  # called with the number of elements whose gradient is ready


def load(rank: Rank, queue: BatchQueue) -> Program:
    """Fetch the batch and copy it to the device: asynchronously from pinned memory, blocking from pageable memory."""
    next_batch(rank, queue)
    if rank.world.preprocess_us:
        preprocess(rank, rank.world.preprocess_us)
    yield from copy_in(rank)


def preprocess(rank: Rank, us: float) -> None:
    """The batch is resized, normalised and stacked in the training process, between the loader and the device."""
    start, pieces = rank.t, len(PREPROCESSING)
    for i, name in enumerate(PREPROCESSING * PREPROCESSED_PARTS):
        spent = us / (pieces * PREPROCESSED_PARTS) * rank.host_noise[i % 512] * rank.world.host_scale[rank.rank]
        rank.record("cpu_op", name, rank.t, rank.t + 0.9 * spent)
        rank.t += spent
    rank.occupants.append(Occupant(start, rank.t, "dataloader"))
    rank.record("python_function", "data.py(31): preprocess_images", start, rank.t)


def copy_in(rank: Rank) -> Program:
    """`batch.to(device)`."""
    model = rank.world.model
    rate = PINNED_GBPS if model.pinned else PAGEABLE_GBPS
    name = "Memcpy HtoD (Pinned -> Device)" if model.pinned else "Memcpy HtoD (Pageable -> Device)"
    yield from copy(rank, name, model.batch_bytes, rate, blocking=not model.pinned)


def copy(rank: Rank, name: str, size: float, gbps: float, blocking: bool) -> Program:
    """`aten::to` with one copy on the compute stream; a blocking one holds the runtime call until it is over."""
    start, cost = rank.t, rank.operator_us(2.0)
    op = DeviceOp(rank.rank, COMPUTE, "memcpy", name, max(1.6, size / (gbps * COPY_BYTES_PER_US)))
    op.bytes = size
    call, call_us = start + 0.45 * cost, 0.25 * cost
    externals = [rank.next_external() for _ in range(3)]
    op.correlation = rank.next_correlation()
    rank.submit(op, call, call + (3.0 if blocking else call_us), externals[2])
    end = start + cost
    if blocking:
        yield op
        assert op.end is not None
        call_us = max(op.end, call) + SYNC_RETURN_US - call
        end = call + call_us + 0.2 * cost
        rank.occupants.append(Occupant(call, call + call_us, "host_sync"))
    rank.runtime("memcpy", call, call_us, externals[2], op.correlation)
    for depth, operator in enumerate(("aten::to", "aten::_to_copy", "aten::copy_")):
        rank.record_as(externals[depth], "cpu_op", operator, start + 0.9 * depth, end - 0.25 * depth)
    rank.t = end


def item(rank: Rank) -> Program:
    """`tensor.item()`: a copy to the host, then a blocking wait for the stream."""
    start, cost = rank.t, rank.operator_us(2.0)
    op = DeviceOp(rank.rank, COMPUTE, "memcpy", "Memcpy DtoH (Device -> Pageable)", 1.6)
    op.bytes = 4.0
    outer, inner = rank.next_external(), rank.next_external()
    op.correlation = rank.runtime("memcpy", start + 0.35 * cost, 0.2 * cost, inner)
    rank.submit(op, start + 0.35 * cost, start + 0.55 * cost, inner)
    wait = start + 0.85 * cost
    yield op
    assert op.end is not None
    back = max(op.end, wait) + SYNC_RETURN_US
    rank.runtime("cudaStreamSynchronize", wait, back - wait, inner)
    rank.occupants.append(Occupant(wait, back, "host_sync"))
    rank.record_as(outer, "cpu_op", "aten::item", start, back + 2.0)
    rank.record_as(inner, "cpu_op", "aten::_local_scalar_dense", start + 0.9, back + 1.75)
    rank.t = back + 2.0


def device_sync(rank: Rank) -> Program:
    """`torch.cuda.synchronize()`: waits for everything queued."""
    start = rank.t + 1.0
    ends = [op for op in (rank.last_on(stream) for stream in range(8)) if op is not None]
    yield from ends
    back = max([start, *(op.end or 0.0 for op in ends)]) + SYNC_RETURN_US
    rank.runtime("cudaDeviceSynchronize", start, back - start, 0)
    rank.occupants.append(Occupant(start, back, "host_sync"))
    rank.t = back + 1.0


def boundary(rank: Rank, layer: int) -> Program:
    """Events before a layer's forward: none in a healthy run, disturbances otherwise."""
    world, here = rank.world, (rank.rank, rank.step)
    if world.model.sync == "none":
        yield from rank.queue_slot()
    for at, us in world.gc.get(here, ()):
        if at == layer:
            rank.occupy("python_function", "Python GC", us, "gc")
    for at, us in world.stalls.get(here, ()):
        if at == layer:
            rank.t += us
    for at, us in world.allocations.get(here, ()):
        if at == layer:
            yield from allocate(rank, us)
    for _ in range(world.barriers.get(layer, 0)):
        yield from barrier(rank)
    if layer in world.syncs:
        yield from item(rank)
        rank.t += world.syncs[layer]


def barrier(rank: Rank) -> Program:
    """`torch.distributed.barrier()` of NCCL: a tiny all-reduce behind all that was launched, and the host waits."""
    op = collective(rank, next(role for role in ("dp", "shard") if role in rank.layout.groups), "allreduce", 1, "Float",
                    call="barrier")  # fmt: skip
    if op is None:
        return
    wait = rank.t
    yield op
    assert op.end is not None
    back = max(op.end, wait) + SYNC_RETURN_US
    rank.runtime("cudaStreamSynchronize", wait, back - wait, 0)
    rank.occupants.append(Occupant(wait, back, "host_sync"))
    rank.t = back + 2.0


def allocate(rank: Rank, us: float) -> Program:
    """The caching allocator gives up: cudaFree (waits for the device) then cudaMalloc, inside `aten::empty`."""
    start = rank.t
    before = rank.last_on(COMPUTE)
    outer = rank.next_external()
    if before is not None:
        yield before
    free_end = max(start + 4.0, before.end or 0.0 if before is not None else 0.0) + 0.35 * us
    malloc_end = free_end + 0.65 * us
    rank.runtime("cudaFree", start + 2.0, free_end - start - 2.0, outer)
    rank.runtime("cudaMalloc", free_end + 1.0, malloc_end - free_end - 1.0, outer)
    rank.occupants.append(Occupant(start + 2.0, malloc_end, "allocator"))
    rank.record_as(outer, "cpu_op", "aten::empty", start, malloc_end + 1.5)
    rank.t = malloc_end + 1.5


def zero_grad(rank: Rank) -> None:
    """`optimizer.zero_grad(set_to_none=True)`."""
    start = rank.t
    rank.t += rank.operator_us(4.6)
    rank.record("user_annotation", "Optimizer.zero_grad#AdamW.zero_grad", start, rank.t)


def run_operators(
    rank: Rank, operators: tuple[Operator, ...], scale: float, layer: int, reduce_after: tuple[int, ...]
) -> None:
    """Forward operators of a layer; after some of them ranks reduce or exchange the activations."""
    if as_graph(rank, operators, scale, layer):
        return
    for i, operator in enumerate(operators):
        rank.sequence += 1
        work = scale * hot(rank, operator)
        kernel = Kernel(
            kernel_key(operator, layer), rank.kernel_us(operator.weight, work * matmul_scale(rank, operator))
        )
        rank.operator(
            path_of(rank, operator), (kernel,), rank.operator_us(), ("dims", operator, work * rank.share_of_work)
        )
        if i in reduce_after:
            blocking_reduce(rank)


def as_graph(rank: Rank, operators: tuple[Operator, ...], scale: float, layer: int) -> bool:
    """Replay the operators as a captured graph, where the model was compiled so and no rank must be met inside."""
    if rank.world.compiled != GRAPHS or any(meeting_points(rank)):
        return False
    kernels = [
        Kernel(kernel_key(op, layer), rank.kernel_us(op.weight, scale * hot(rank, op) * matmul_scale(rank, op)))
        for op in operators
    ]
    rank.graph(kernels, rank.operator_us(GRAPH_OPERATORS))
    return True


def hot(rank: Rank, operator: Operator) -> float:
    """Requests for this rank's expert or table over the mean."""
    return rank.world.hot.get(rank.rank, 1.0) if operator.sharded else 1.0


def part_of(operators: tuple[Operator, ...], part: tuple[int, int]) -> tuple[Operator, ...]:
    """The k-th of n parts of a layer, (0, 1) for all of it."""
    number, parts = part
    return operators[number * len(operators) // parts : (number + 1) * len(operators) // parts]


def matmul_scale(rank: Rank, operator: Operator) -> float:
    """Matmuls run longer on a power-capped device, and several times longer in fp32 without TF32."""
    if operator.dims is None and not operator.role.startswith("conv"):
        return 1.0
    slowdown = rank.world.fp32_slowdown if rank.world.model.precision == "fp32" else 1.0
    return slowdown * rank.world.matmul_scale[rank.rank]


def kernel_key(operator: Operator, layer: int) -> str:
    """Role of the kernel; the writer turns it into a vendor's name."""
    return f"{operator.role}/{layer % 2}"


def blocking_reduce(rank: Rank) -> None:
    """Communication before the next kernel: all-reduce of the tensor-parallel group, or all-to-all of experts,
    tables.
    """
    role, kind = ("tp", "allreduce") if "tp" in rank.layout.groups else ("ep", "all_to_allv")
    op = collective(rank, role, kind, rank.world.parallel.activation_elems)
    if op is not None:
        rank.wait_on_stream(op)


def forward_layer(rank: Rank, layer: int, scale: float = 1.0) -> Program:
    """Forward of one layer, disturbances first."""
    yield from boundary(rank, layer)
    forward_operators(rank, layer, scale)


def meeting_points(rank: Rank) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The operators of a layer, forward and backward, after which its ranks meet."""
    if "tp" in rank.layout.groups:
        return TP_AFTER_FORWARD, TP_AFTER_BACKWARD
    return EXCHANGE_AFTER.get(rank.world.model.arch, ((), ()))


def forward_operators(rank: Rank, layer: int, scale: float = 1.0, part: tuple[int, int] = (0, 1)) -> None:
    """Forward of one layer, or a part of it."""
    region = begin_region(rank)
    operators = part_of(forward(rank.world.model.arch), part)
    run_operators(rank, operators, scale, layer, meeting_points(rank)[0])
    end_region(rank, region)


def head_forward(rank: Rank, scale: float = 1.0) -> None:
    """Output projection and loss."""
    run_operators(rank, HEAD_FORWARD, scale, 0, ())


def backward_operators(
    rank: Rank, operators: tuple[Operator, ...], scale: float, layer: int, ready: OnGradient | None,
    reduce_after: tuple[int, ...] = (),
) -> None:  # fmt: skip
    """Backward operators on the autograd thread; `ready` hears of each gradient as soon as it is computed."""
    rank.thread = BACKWARD
    replayed = as_graph(rank, operators, scale, layer)
    for i, operator in enumerate(operators):
        if replayed:
            if operator.gradient and ready is not None:
                ready(round(operator.gradient * rank.world.model.params_per_layer))
            continue
        rank.sequence += 1
        work = scale * hot(rank, operator)
        kernel = Kernel(
            kernel_key(operator, layer), rank.kernel_us(operator.weight, work * matmul_scale(rank, operator))
        )
        path = path_of(rank, operator)
        rank.operator(path, (kernel,), rank.operator_us(0.9), ("dims", operator, work * rank.share_of_work))
        if operator.gradient and ready is not None:
            ready(round(operator.gradient * rank.world.model.params_per_layer))
        if i in reduce_after:
            blocking_reduce(rank)
    rank.thread = MAIN


def backward_layer(
    rank: Rank, layer: int, scale: float = 1.0, ready: OnGradient | None = None, part: tuple[int, int] = (0, 1)
) -> None:
    """Backward of one layer, or a part of it; before it its forward again, where activations were not kept."""
    rank.thread = BACKWARD
    if rank.world.model.recompute and layer % rank.world.model.recompute == 0:
        began = rank.t
        operators = part_of(forward(rank.world.model.arch), part)
        run_operators(rank, operators, scale, layer, meeting_points(rank)[0])
        rank.recomputed.append((began, rank.t))
    region = begin_region(rank)
    operators = part_of(backward(rank.world.model.arch), part)
    backward_operators(rank, operators, scale, layer, ready, meeting_points(rank)[1])
    rank.thread = BACKWARD
    end_region(rank, region)
    rank.thread = MAIN


def head_backward(rank: Rank, scale: float = 1.0, ready: OnGradient | None = None) -> None:
    """Backward of loss and output projection."""
    backward_operators(rank, HEAD_BACKWARD, scale, 0, ready)


def embedding_backward(rank: Rank, scale: float = 1.0, ready: OnGradient | None = None) -> None:
    """Backward of the embedding, the last gradient."""
    backward_operators(rank, (EMBEDDING_BACKWARD,), scale, 0, ready)
