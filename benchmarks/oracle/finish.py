"""The end of a step: optimizer, checkpoint, waiting for the device, the step mark."""

from __future__ import annotations

from benchmarks.oracle.device import DeviceOp
from benchmarks.oracle.rank import Kernel, Occupant, Program, Rank
from benchmarks.oracle.step import DTOH_GBPS, copy, copy_in, device_sync, forward_operators, head_forward, item

SCRIPT_FRAME = "train.py(92): update_ema"
EVALUATION_FRAME = "train.py(88): evaluate"
UNSEEN_STREAM = 9  # orders what no file shows
BARRIER_RETURN_US = 20.0  # from the last host's arrival until the others have heard of it
CHECKPOINT_TENSORS = 6
CHECKPOINT_TENSOR_BYTES = 8_000_000
FUSED_LAUNCHES = 4
FOREACH_OPERATORS = (
    "aten::_foreach_add_", "aten::_foreach_mul_", "aten::_foreach_lerp_", "aten::_foreach_mul_",
    "aten::_foreach_addcmul_", "aten::_foreach_sqrt", "aten::_foreach_div_", "aten::_foreach_add_",
    "aten::_foreach_addcdiv_",
)  # fmt: skip
SINGLE_OPERATORS = (
    "aten::add_", "aten::mul_", "aten::lerp_", "aten::mul_", "aten::addcmul_", "aten::sqrt", "aten::div_",
    "aten::add_", "aten::addcdiv_",
)  # fmt: skip


def optimizer_step(rank: Rank, share: float = 1.0) -> None:
    """AdamW over this rank's parameters; `share` is the part of the model it holds."""
    model = rank.world.model
    start = rank.t
    rank.t += rank.operator_us(6.4)
    launches = model.layers * share * 0.45
    if model.optimizer == "fused":
        for _ in range(FUSED_LAUNCHES):
            kernel = Kernel("adam", rank.kernel_us(launches / FUSED_LAUNCHES), "optimizer")
            rank.operator(("aten::_fused_adamw_",), (kernel,), rank.operator_us(3.3))
    elif model.optimizer == "foreach":
        for name in FOREACH_OPERATORS:
            kernel = Kernel("foreach", rank.kernel_us(launches * 1.5 / len(FOREACH_OPERATORS)), "optimizer")
            rank.operator((name,), (kernel,), rank.operator_us(4.0))
    else:
        _single_tensor_steps(rank, launches * 1.3)
    rank.t += rank.operator_us(1.2)
    rank.record("user_annotation", "Optimizer.step#AdamW.step", start, rank.t)


def _single_tensor_steps(rank: Rank, weight: float) -> None:
    """One chain of small kernels per parameter tensor."""
    model = rank.world.model
    tensors = model.layers * model.tensors_per_layer
    per_kernel = weight / (tensors * len(SINGLE_OPERATORS))
    for _ in range(tensors):
        for name in SINGLE_OPERATORS:
            rank.operator(
                (name,), (Kernel("elementwise", rank.kernel_us(per_kernel), "optimizer"),), rank.operator_us(0.9)
            )


def checkpoint(rank: Rank, us: float) -> Program:
    """`state_dict()` copied to the host, then written."""
    start = rank.t
    rank.t += 200.0
    rank.record("user_annotation", "state_dict", start, rank.t)
    for _ in range(CHECKPOINT_TENSORS):
        yield from copy(rank, "Memcpy DtoH (Device -> Pageable)", CHECKPOINT_TENSOR_BYTES, DTOH_GBPS, blocking=True)
    rank.occupy("user_annotation", rank.world.checkpoint_name, us, "checkpoint")


def evaluate(rank: Rank, batches: int) -> Program:
    """`if rank == 0: evaluate()`: forward passes of this rank alone, and the metric is read."""
    for _ in range(batches):
        yield from copy_in(rank)
        for layer in range(rank.world.model.layers):
            forward_operators(rank, layer)
        head_forward(rank)
    yield from item(rank)


def script(rank: Rank, us: float) -> None:
    """The script's own Python behind the optimizer: nothing is launched, and only a frame shows it."""
    start = rank.t
    rank.t += us * rank.host_noise[0]
    rank.record("python_function", SCRIPT_FRAME, start, rank.t)


def meet_on_the_host(rank: Rank) -> Program:
    """A barrier of the hosts that leaves no event: over CPU sockets, or a store."""
    op = DeviceOp(rank.rank, UNSEEN_STREAM, "host", "barrier", 0.0)
    everyone = tuple(range(rank.world.size))
    op.collective = rank.meeting.join("hosts", rank.calls("hosts"), "send", 0.0, everyone)
    op.launch_start = op.launch_end = start = rank.t
    rank.devices.submit(op)
    yield op
    assert op.end is not None
    rank.t = op.end + BARRIER_RETURN_US
    rank.occupants.append(Occupant(start, rank.t, "comm_wait"))


def finish(rank: Rank, share: float = 1.0, trains: bool = True) -> Program:
    """Optimizer, checkpoint if due, the script's wait for the device, Python until the mark."""
    if trains:
        optimizer_step(rank, share)
    due = rank.world.checkpoints.get((rank.rank, rank.step))
    if due is not None:
        yield from checkpoint(rank, due)
    batches = rank.world.evaluations.get((rank.rank, rank.step), 0)
    if batches:
        start = rank.t
        yield from evaluate(rank, batches)
        rank.record("python_function", EVALUATION_FRAME, start, rank.t)
    spent = rank.world.scripts.get(rank.rank, 0.0)
    if spent:
        script(rank, spent)
    sync = rank.world.model.sync
    if sync == "item_end":
        yield from item(rank)
    elif sync == "device_sync":
        yield from device_sync(rank)
    rank.t += rank.operator_us(3.5)
    if rank.world.rendezvous:
        yield from meet_on_the_host(rank)
