"""Kernels by name and shapes: the unit of comparison between ranks, and the FLOPs behind MFU."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ddprof.analyzers.facts.model import KERNEL_GROUPS, NO_STRING, RankFacts, Work
from ddprof.analyzers.facts.names import is_gemm
from ddprof.model import RankTrace, element_bytes
from ddprof.tables import NULL, Array, Table

# Names of matrix kernels: marks of operands narrower than single precision (TF32 included), and of single precision.
_NARROW = ("bf16", "f16", "half", "tf32", "fp8", "e4m3", "i8")
# Tensor cores, whatever the operands: in single precision they multiply TF32 (CUTLASS s1688 is m16n8k8; cuBLAS nvjet).
_TENSOR_CORES = re.compile(r"tensorop|[_a-z](?:884|1688|16816)(?:gemm|cudnn|fprop|dgrad|wgrad)|nvjet|wgmma")
_SINGLE = ("sgemm", "scudnn", "f32f32_f32f32", "<float,")
# Tensile (rocBLAS, hipBLASLt) names its operand type after the index letters: Cijk_Ailk_Bljk_SB_..., ..._HHS_BH_...
_TENSILE = re.compile(r"^Cijk_[A-Z][a-z]+_[A-Z][a-z]+_([A-Z])")
_HELPER = re.compile(r"split_?k_?reduce|postgsu", re.IGNORECASE)  # sums parts of a product: cuBLAS, CUTLASS, Tensile
_QUOTED = re.compile(r'"(\w[^"]*)"')  # the first type in a text of them; of a list of tensors its first
_MOST_DIMENSIONS, _MOST_ELEMENTS = 64, 2**58  # of a tensor: operators take no more, and no memory holds more


def kernel_groups(trace: RankTrace, ops: Table, steps: Table) -> Table:
    """Compute kernels inside the steps by (name, shapes): count, total time, FLOPs where shapes allow."""
    if not len(steps) or not len(ops):
        return KERNEL_GROUPS.empty()
    inside = (ops["start_ns"] >= steps["start_ns"][0]) & (ops["start_ns"] < steps["end_ns"][-1])
    kernels = np.flatnonzero((ops["work"] == Work.COMPUTE) & inside)
    if not len(kernels):
        return KERNEL_GROUPS.empty()
    shape = ops["shape"][kernels].astype(np.int64)
    key = _key(ops["name"][kernels], shape)
    order = np.argsort(key, kind="stable")
    kernels, key, shape = kernels[order], key[order], shape[order]
    first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    count = np.diff(np.append(first, len(key)))
    dur = ops["end_ns"][kernels] - ops["start_ns"][kernels]
    operator = ops["operator"][kernels][first]
    total_ns = np.add.reduceat(dur, first)
    names = [trace.strings[int(n)] for n in ops["name"][kernels][first]]
    does = _does_the_operators_work(operator, shape[first], total_ns, names)
    shape = shape[first]
    flops = [_flops(trace, int(o), int(s)) for o, s in zip(operator, shape, strict=True)]
    by_shape = _types_by_shape(trace)
    types = [by_shape.get(int(s), "") for s in shape]
    return KERNEL_GROUPS.table(
        {
            "name": ops["name"][kernels][first],
            "shape": shape,
            "count": count,
            "total_ns": total_ns,
            "flops": np.where(does | np.isnan(flops), flops, 0.0) * count,
            "element_bytes": [_element_bytes(each) for each in types],
            "is_gemm": is_gemm(names),
            "is_fp32": [_is_fp32(name, each) for name, each in zip(names, types, strict=True)],
        }
    )


def _does_the_operators_work(operator: Array, shape: Array, total_ns: Array, names: Sequence[str]) -> Array:
    """Mask of the kernels that carry their operators' FLOPs. In a call of several kernels these are the longest one and
    other matrix kernels on the same operands, not kernels that prepare or sum partial products.
    """
    order = np.lexsort((-total_ns, _key(operator, shape)))
    key = _key(operator, shape)[order]
    is_longest = np.append(True, key[1:] != key[:-1])
    group = np.cumsum(is_longest) - 1
    multiplies = is_gemm(names) & ~np.array([_HELPER.search(name) is not None for name in names])
    does = np.empty(len(order), bool)
    does[order] = is_longest | (multiplies[order] & multiplies[order[is_longest]][group])
    return does


def with_steps(facts: RankFacts, rows: Array) -> RankFacts:
    """The rank reduced to some of its steps. Tables of single events still cover its whole window."""
    if len(rows) == len(facts.steps):
        return facts
    steps = facts.steps.take(rows)
    return replace(facts, steps=steps, kernel_groups=groups_within(facts.kernel_groups, facts.device_ops, steps))


def groups_within(groups: Table, ops: Table, steps: Table) -> Table:
    """KERNEL_GROUPS recounted over some of the rank's steps, without groups that launch nothing there."""
    if not len(groups) or not len(steps):
        return groups.take(np.arange(0))
    inside = (ops["start_ns"] >= steps["start_ns"][0]) & (ops["start_ns"] < steps["end_ns"][-1])
    kernels = np.flatnonzero((ops["work"] == Work.COMPUTE) & inside)
    key = _key(groups["name"], groups["shape"])
    order = np.argsort(key)
    at = np.searchsorted(key[order], _key(ops["name"][kernels], ops["shape"][kernels]))
    row = order[np.minimum(at, len(key) - 1)]
    count = np.bincount(row, minlength=len(groups))
    total = np.bincount(row, weights=(ops["end_ns"] - ops["start_ns"])[kernels], minlength=len(groups))
    flops = groups["flops"] / groups["count"] * count
    return groups.replace(count=count, total_ns=total.astype(np.int64), flops=flops).take(np.flatnonzero(count))


def _key(name: Array, shape: Array) -> Array:
    """One number per (name, shapes) pair."""
    return name.astype(np.int64) * 2**32 + np.where(shape == NO_STRING, 2**31, shape.astype(np.int64))


def _types_by_shape(trace: RankTrace) -> dict[int, str]:
    operators = trace.operators
    dims, first = np.unique(operators["dims"], return_index=True)
    return {int(d): trace.strings[t] for d, t in zip(dims, operators["types"][first], strict=True)}


def _element_bytes(types: str) -> int:
    """Element size of the first tensor in a text of types (["c10::BFloat16", "Scalar"]); NULL if unknown."""
    match = _QUOTED.search(types)
    size = element_bytes(match[1]) if match else None
    return NULL if size is None else size


def _is_fp32(text: str, types: str) -> bool:
    """True for a matrix kernel on single-precision operands, by recorded types or the library's kernel name."""
    if not is_gemm([text])[0]:
        return False
    lowered, recorded = text.lower(), types.lower()
    if any(mark in lowered for mark in _NARROW) or _TENSOR_CORES.search(lowered):
        return False
    if "c10::bfloat16" in recorded or "c10::half" in recorded:
        return False
    tensile = _TENSILE.match(text)
    if tensile:
        return tensile[1] == "S"
    return '"float' in recorded or any(mark in lowered for mark in _SINGLE)


def _flops(trace: RankTrace, operator: int, shape: int) -> float:
    """FLOPs of a call: 2 m n k for matrix products; NaN where operator or shapes are not enough."""
    if operator == NO_STRING or shape == NO_STRING:
        return math.nan
    return operator_flops(trace.strings[operator], tensors_of(trace.strings[shape]))


def tensors_of(shapes: str) -> list[list[int]]:
    """Shapes of the tensors in a recorded text; [] where it cannot be parsed."""
    try:
        dims = json.loads(shapes)
    except (ValueError, RecursionError):
        return []
    return [d for d in dims if _is_shape(d)] if isinstance(dims, list) else []


def is_attention(operator: str) -> bool:
    """True for attention operators whose first tensors are query (or its gradient), key and value."""
    return "scaled_dot_product" in operator or "flash_attention" in operator


def _is_shape(value: Any) -> bool:
    """True where a value is a tensor's shape that fits a memory, so that its FLOPs fit a float."""
    if not isinstance(value, list) or not value or not all(type(n) is int and n >= 0 for n in value):
        return False
    return len(value) <= _MOST_DIMENSIONS and math.prod(value) < _MOST_ELEMENTS


def factors_of(name: str, tensors: list[list[int]]) -> tuple[list[int], list[int]] | None:
    """The shapes of the two matrices, or batches of them, that an operator multiplies; None for any other."""
    if name not in {"mm", "bmm", "addmm", "baddbmm", "matmul", "linear"}:
        return None
    pair = tensors[-2:] if name in {"addmm", "baddbmm"} else tensors[:2]
    return (pair[0], pair[1]) if len(pair) == 2 and min(map(len, pair)) >= 2 else None


def operator_flops(operator: str, tensors: list[list[int]]) -> float:
    """FLOPs of an operator on tensors of these shapes; NaN where they are not enough."""
    name = operator.removeprefix("aten::")
    factors = factors_of(name, tensors)
    if factors is not None:
        left, right = factors
        return float(2.0 * math.prod(left) * (right[0] if name == "linear" else right[-1]))
    if is_attention(name):
        if len(tensors) < 2 or len(tensors[0]) != 4 or len(tensors[1]) != 4:
            return math.nan
        # The operators that launch the kernels take (batch, tokens, heads, width); their callers heads before tokens.
        tokens, heads_at = (2, 1) if "scaled_dot_product" in name else (1, 2)
        batch, heads, queries, width = (tensors[0][at] for at in (0, heads_at, tokens, 3))
        keys = tensors[1][tokens]
        factor = 10.0 if "backward" in name else 4.0
        return float(factor * batch * heads * queries * keys * width)
    is_convolution = name.startswith(("conv", "cudnn_conv", "miopen_conv", "_convolution"))
    if is_convolution and len(tensors) >= 2 and len(tensors[1]) >= 3:
        image, weight = tensors[0], tensors[1]
        # Stride 1, same padding: an upper bound.
        return float(2.0 * image[0] * math.prod(weight) * math.prod(image[2:]))
    return math.nan
