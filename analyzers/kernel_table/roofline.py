"""FLOPs and least bytes of operations, and the least time in which their device could do both (the roofline model:
Williams, Waterman, Patterson 2009)."""

from __future__ import annotations

import math

import numpy as np

from ddprof.analyzers.facts.kernels import is_attention, tensors_of
from ddprof.analyzers.facts.model import NO_STRING, RankFacts, Work
from ddprof.analyzers.kernel_table.distinct import distinct
from ddprof.hardware import memory_bandwidth, peak_flops
from ddprof.tables import NULL, Array, Table

_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "matmul", "linear"}


def costs(facts: RankFacts, operations: Table) -> tuple[Array, Array, Array]:
    """FLOPs, least bytes moved and least time (ns) of each operation, float; NaN where it is not known."""
    flops, size_bytes, least_ns = np.full((3, len(operations)), np.nan)
    groups = facts.kernel_groups
    mine = np.flatnonzero(operations["work"] == Work.COMPUTE)
    if not len(groups) or not len(mine):
        return flops, size_bytes, least_ns
    known = {
        (n, s): row for row, (n, s) in enumerate(zip(groups["name"].tolist(), groups["shape"].tolist(), strict=True))
    }
    keys = np.stack([operations[name][mine].astype(np.int64) for name in ("name", "shape", "operator")])
    which, first = distinct(keys)
    found = np.full((3, len(first)), np.nan)
    for column, (name, shape, operator) in enumerate(keys[:, first].T.tolist()):
        row = known.get((name, shape))
        if row is not None and NO_STRING not in (shape, operator):
            found[:, column] = _cost(facts, row, facts.strings[operator], facts.strings[shape])
    flops[mine], size_bytes[mine], least_ns[mine] = found[:, which]
    return flops, size_bytes, least_ns


def _cost(facts: RankFacts, group: int, operator: str, shapes: str) -> tuple[float, float, float]:
    groups, name = facts.kernel_groups, operator.removeprefix("aten::")
    flops = float(groups["flops"][group]) / max(1, int(groups["count"][group]))
    if "conv" in name:
        return math.nan, math.nan, math.nan  # strides are not recorded: an upper bound is no roofline
    size_bytes = least_bytes(name, tensors_of(shapes), int(groups["element_bytes"][group]))
    if not flops > 0:  # none: a helper of the kernel that does the work, whose time is part of what the operator takes
        return (math.nan, math.nan, math.nan) if math.isnan(flops) else (0.0, 0.0, 0.0)
    peak = peak_flops(facts.device.name, fp32=bool(groups["is_fp32"][group]))
    rate = memory_bandwidth(facts.device.name)
    if peak is None or rate is None or not math.isfinite(size_bytes):
        return flops, size_bytes, math.nan
    return flops, size_bytes, 1e9 * max(flops / peak, size_bytes / rate)


def least_bytes(name: str, tensors: list[list[int]], element_bytes: int) -> float:
    """What an operator reads and writes at least, each operand and the result once; NaN where that is not known."""
    if element_bytes == NULL or not tensors:
        return math.nan
    if name in _PRODUCTS:
        pair = tensors[-2:] if name in {"addmm", "baddbmm"} else tensors[:2]
        if len(pair) < 2 or min(map(len, pair)) < 2:
            return math.nan
        left, right = pair
        result = math.prod(left[:-1]) * (right[0] if name == "linear" else right[-1])
        return float((math.prod(left) + math.prod(right) + result) * element_bytes)
    if is_attention(name) and len(tensors) > 2:  # the queries are as large as the result; a backward pass moves more
        return float((math.prod(tensors[0]) + sum(map(math.prod, tensors[:3]))) * element_bytes)
    return math.nan
