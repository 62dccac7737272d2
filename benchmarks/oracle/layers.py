"""Operators of a layer, forward and backward: names, kernels by role, and weights in model units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache


@dataclass(frozen=True)
class Operator:
    """One operator: nested names (outermost first), the role of its kernel, its weight, its gradient's share.

    `dims` names the matmul dimensions (rows, inner, columns) in hidden sizes (0 = tokens), for `record_shapes`.
    """

    path: tuple[str, ...]
    role: str
    weight: float
    dims: tuple[int, int, int] | None = None
    gradient: float = 0.0  # share of the layer's parameters whose gradient is ready after it
    sharded: bool = False  # works on what this rank's expert or table is asked for


_LINEAR = ("aten::linear", "aten::addmm")
_NORM = ("aten::layer_norm", "aten::native_layer_norm")
_FLASH = (
    "aten::scaled_dot_product_attention",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_flash_attention_forward",
)

GPT_FORWARD = (
    Operator(_NORM, "norm", 0.14),
    Operator(_LINEAR, "gemm", 1.0, (0, 1, 3)),
    Operator(_FLASH, "attention", 0.72),
    Operator(_LINEAR, "gemm", 0.36, (0, 1, 1)),
    Operator(("aten::add",), "add", 0.09),
    Operator(_NORM, "norm", 0.14),
    Operator(_LINEAR, "gemm_wide", 0.92, (0, 1, 4)),
    Operator(("aten::gelu",), "activation", 0.18),
    Operator(_LINEAR, "gemm", 0.86, (0, 4, 1)),
    Operator(("aten::add",), "add", 0.09),
)
TP_AFTER_FORWARD = (3, 8)  # indices after which tensor parallelism reduces activations
TP_AFTER_BACKWARD = (5, 11)  # and gradients of activations, in the backward list below

_MM = ("AddmmBackward0", "aten::mm")
GPT_BACKWARD = (
    Operator(("AddBackward0", "aten::add_"), "add", 0.18),
    Operator(_MM, "gemm_grad", 0.86, (0, 1, 4)),
    Operator(_MM, "gemm_grad", 0.86, (4, 0, 1), gradient=1 / 3),
    Operator(("GeluBackward0", "aten::gelu_backward"), "activation", 0.36),
    Operator(_MM, "gemm_wide", 0.92, (0, 4, 1)),
    Operator(_MM, "gemm_wide", 0.92, (1, 0, 4), gradient=1 / 3),
    Operator(("NativeLayerNormBackward0", "aten::native_layer_norm_backward"), "norm_grad", 0.27),
    Operator(_MM, "gemm_grad", 0.36, (0, 1, 1)),
    Operator(_MM, "gemm_grad", 0.36, (1, 0, 1), gradient=1 / 12),
    Operator(
        ("ScaledDotProductFlashAttentionBackward0", "aten::_scaled_dot_product_flash_attention_backward",
         "aten::_flash_attention_backward"), "attention_grad", 1.44,
    ),
    Operator(_MM, "gemm_grad", 1.0, (0, 3, 1)),
    Operator(_MM, "gemm_grad", 1.0, (1, 0, 3), gradient=1 / 4),
    Operator(("NativeLayerNormBackward0", "aten::native_layer_norm_backward"), "norm_grad", 0.27),
)  # fmt: skip

_CONV = ("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution")
_BN = ("aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm")
CNN_FORWARD = (
    Operator(_CONV, "conv", 1.0),
    Operator(_BN, "norm", 0.2),
    Operator(("aten::relu_", "aten::clamp_min_"), "activation", 0.12),
    Operator(_CONV, "conv", 1.3),
    Operator(_BN, "norm", 0.2),
    Operator(("aten::add_",), "add", 0.11),
    Operator(("aten::relu_", "aten::clamp_min_"), "activation", 0.12),
)
_CONV_GRAD = ("ConvolutionBackward0", "aten::convolution_backward")
CNN_BACKWARD = (
    Operator(("ReluBackward0", "aten::threshold_backward"), "activation", 0.15),
    Operator(("CudnnBatchNormBackward0", "aten::cudnn_batch_norm_backward"), "norm_grad", 0.35),
    Operator(_CONV_GRAD, "conv_grad", 1.3),
    Operator(_CONV_GRAD, "conv_weight", 1.4, gradient=0.55),
    Operator(("ReluBackward0", "aten::threshold_backward"), "activation", 0.15),
    Operator(("CudnnBatchNormBackward0", "aten::cudnn_batch_norm_backward"), "norm_grad", 0.35),
    Operator(_CONV_GRAD, "conv_grad", 1.0),
    Operator(_CONV_GRAD, "conv_weight", 1.1, gradient=0.45),
)

_RELU = (("aten::relu", "aten::clamp_min"), ("ReluBackward0", "aten::threshold_backward"))
DLRM_FORWARD = (
    Operator(("fbgemm::split_embedding_codegen_forward_unweighted_cuda",), "lookup", 1.6, sharded=True),
    Operator(_LINEAR, "gemm", 1.0, (0, 1, 3)),
    Operator(_RELU[0], "activation", 0.18),
    Operator(_LINEAR, "gemm_wide", 0.92, (0, 3, 1)),
    Operator(("aten::add",), "add", 0.09),
)
DLRM_BACKWARD = (
    Operator(("AddBackward0", "aten::add_"), "add", 0.18),
    Operator(_MM, "gemm_wide", 0.92, (0, 1, 3)),
    Operator(_MM, "gemm_grad", 0.92, (3, 0, 1), gradient=1 / 2),
    Operator(_RELU[1], "activation", 0.36),
    Operator(_MM, "gemm_grad", 1.0, (1, 0, 3), gradient=1 / 2),
    Operator(("SplitLookupFunctionBackward", "fbgemm::split_embedding_backward_codegen_unweighted_cuda"), "embedding",
             1.9, sharded=True),
)  # fmt: skip
_EXPERT_FORWARD, _EXPERT_BACKWARD = range(6, 9), range(1, 6)  # the two linear layers behind attention
MOE_FORWARD = tuple(replace(op, sharded=i in _EXPERT_FORWARD) for i, op in enumerate(GPT_FORWARD))
MOE_BACKWARD = tuple(replace(op, sharded=i in _EXPERT_BACKWARD) for i, op in enumerate(GPT_BACKWARD))
# Indices after which all ranks exchange tokens or vectors, forward and backward.
EXCHANGE_AFTER = {"moe": ((5, 8), (0, 5)), "dlrm": ((0,), (4,))}

HEAD_FORWARD = (
    Operator(_LINEAR, "gemm", 0.7, (0, 1, 4)),
    Operator(("aten::cross_entropy_loss", "aten::log_softmax", "aten::_log_softmax"), "softmax", 0.09),
)
HEAD_BACKWARD = (
    Operator(("LogSoftmaxBackward0", "aten::_log_softmax_backward_data"), "softmax", 0.09),
    Operator(_MM, "gemm_grad", 0.7, (0, 4, 1)),
    Operator(_MM, "gemm_grad", 0.7, (4, 0, 1), gradient=0.3),
)
EMBEDDING_BACKWARD = Operator(
    ("EmbeddingBackward0", "aten::embedding_backward", "aten::embedding_dense_backward"),
    "embedding",
    0.22,
    gradient=0.3,
)


@lru_cache(maxsize=8)
def forward(arch: str) -> tuple[Operator, ...]:
    """Forward operators of one layer."""
    return {"cnn": CNN_FORWARD, "moe": MOE_FORWARD, "dlrm": DLRM_FORWARD}.get(arch, GPT_FORWARD)


@lru_cache(maxsize=8)
def backward(arch: str) -> tuple[Operator, ...]:
    """Backward operators of one layer, in the order autograd runs them."""
    return {"cnn": CNN_BACKWARD, "moe": MOE_BACKWARD, "dlrm": DLRM_BACKWARD}.get(arch, GPT_BACKWARD)
