"""Changes by `torch.compile` in a recording: regions around a layer, and Triton kernels in place of small ones."""

from __future__ import annotations

from benchmarks.oracle.layers import Operator
from benchmarks.oracle.rank import BACKWARD, MAIN, Rank

INDUCTOR, GRAPHS = "inductor", "graphs"  # `mode="reduce-overhead"` replays a graph per layer
LOOKUP_US = 4.0  # Dynamo's guards
FORWARD_REGIONS = ("Torch-Compiled Region: 0/0", "CompiledFunction", "## Call CompiledFxGraph fxkj3a5pl ##")
BACKWARD_REGIONS = (
    "autograd::engine::evaluate_function: CompiledFunctionBackward",
    "CompiledFunctionBackward",
    "## Call CompiledFxGraph fxb6cm2qt ##",
)
TRITON = {
    "norm": "triton_red_fused_native_layer_norm_2",
    "add": "triton_poi_fused_add_3",
    "activation": "triton_poi_fused_gelu_4",
    "norm_grad": "triton_red_fused_native_layer_norm_backward_22",
    "softmax": "triton_red_fused__log_softmax_7",
}


def path_of(rank: Rank, operator: Operator) -> tuple[str, ...]:
    """The names an operator is recorded under, outermost first."""
    compiled, backward = bool(rank.world.compiled), rank.thread == BACKWARD
    if compiled:
        return (TRITON[operator.role],) if operator.role in TRITON else operator.path[-1:]
    return ("autograd::engine::evaluate_function: " + operator.path[0], *operator.path) if backward else operator.path


def begin_region(rank: Rank) -> float:
    """Before the operators of a layer: guards are looked up. Returns when the region began."""
    if not rank.world.compiled:
        return rank.t
    start = rank.t
    rank.t += LOOKUP_US
    if rank.thread == MAIN:
        rank.record("cpu_op", "TorchDynamo Cache Lookup", start, rank.t)
    return rank.t


def end_region(rank: Rank, start: float) -> None:
    """After the operators of a layer."""
    if rank.world.compiled:
        rank.t += 1.0
        for depth, name in enumerate(BACKWARD_REGIONS if rank.thread == BACKWARD else FORWARD_REGIONS):
            rank.record("cpu_op", name, start - 0.4 + 0.1 * depth, rank.t - 0.1 * depth)
