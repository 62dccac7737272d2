"""Forward kernels that run again in the backward pass: activation checkpointing.

The autograd engine's thread launches the kernels of backward operators. Where it launches the same operators and
kernels in the same order as the forward pass, and among them operators that have a backward operator of their own
(`aten::native_layer_norm`, `aten::native_layer_norm_backward`), it computes activations again that were not kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import NO_STRING, Work
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array, Table

IN_ORDER = 3  # kernels that follow one another as in the forward pass: fewer may do so by chance (two products)
BACKWARD = "backward"


def recomputed(ops: Table, strings: Sequence[str]) -> Array:
    """Which device operations compute the forward pass again; bool, shape (device_ops,)."""
    marked = np.zeros(len(ops), bool)
    rows = np.flatnonzero((ops["work"] == Work.COMPUTE) & (ops["launch_ns"] != NULL) & (ops["operator"] != NO_STRING))
    rows = rows[np.argsort(ops["launch_ns"][rows], kind="stable")]
    operator, thread = ops["operator"][rows], ops["thread"][rows]
    used = np.unique(operator)
    backwards = used[[BACKWARD in strings[int(code)].lower() for code in used]] if len(used) else used
    engine = thread[np.isin(operator, backwards)]
    if not len(engine):
        return marked
    found, counts = np.unique(engine, return_counts=True)
    back = thread == found[np.argmax(counts)]
    anchors = _with_backward(np.unique(operator[~back]), backwards, strings)
    again = np.isin(operator, anchors) & back
    if not again.any():
        return marked
    _, kind = np.unique(np.stack((operator, ops["name"][rows])), axis=1, return_inverse=True)
    kind = kind.ravel().astype(np.int64)
    repeats = _repeats(kind[~back], kind[back])
    run = np.cumsum(np.append(True, repeats[1:] != repeats[:-1]))
    real = np.isin(run, run[again[back] & repeats])
    marked[rows[back][repeats & real]] = True
    return marked


def _with_backward(forward: Array, backwards: Array, strings: Sequence[str]) -> Array:
    """Operators of the forward pass (codes) whose backward operator was launched too."""
    known = [strings[int(code)] for code in backwards]
    stems = {code: strings[int(code)].removesuffix("_forward") + "_" + BACKWARD for code in forward.tolist()}
    return np.array([c for c, stem in stems.items() if any(name.startswith(stem) for name in known)], np.int64)


def _repeats(forward: Array, backward: Array) -> Array:
    """Which kernels of the backward pass are part of IN_ORDER that follow one another in the forward pass too."""
    repeats = np.zeros(len(backward), bool)
    if min(len(forward), len(backward)) < IN_ORDER:
        return repeats
    starts = np.isin(_in_order(backward), _in_order(forward))
    for offset in range(IN_ORDER):
        repeats[offset : len(backward) - IN_ORDER + 1 + offset] |= starts
    return repeats


def _in_order(kinds: Array) -> Array:
    """A number for every IN_ORDER consecutive kinds, shape (kinds - IN_ORDER + 1,)."""
    base = 1 << 20  # more kinds of kernels than any program has
    number = np.zeros(len(kinds) - IN_ORDER + 1, np.int64)
    for offset in range(IN_ORDER):
        number = number * base + kinds[offset : len(kinds) - IN_ORDER + 1 + offset]
    return number


def recomputing(ops: Table, marked: Array) -> Intervals:
    """When the host launches what is computed again, block by block: between which it launches nothing else."""
    rows = np.flatnonzero((ops["launch_ns"] != NULL) & (ops["work"] == Work.COMPUTE))
    rows = rows[np.argsort(ops["launch_ns"][rows], kind="stable")]
    again = marked[rows]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], again, [False])).astype(np.int8)))
    first, last = rows[edges[::2]], rows[edges[1::2] - 1]
    return ops["launch_ns"][first], ops["launch_end_ns"][last]


def kept_bytes(memory: Table, blocks: Intervals, steps: Table) -> int | None:
    """Memory per step that holding what is computed again would take: by how much tensors grow while it is computed.

    `memory`: of the device alone. None where the allocator was not recorded.
    """
    known = np.flatnonzero(memory["allocated_bytes"] != NULL)
    known = known[np.argsort(memory["ts_ns"][known], kind="stable")]
    if not len(known) or not len(steps):
        return None
    start, end = blocks
    inside = (start >= steps["mark_ns"][0]) & (end <= steps["mark_end_ns"][-1])
    at, held = memory["ts_ns"][known], memory["allocated_bytes"][known]
    edges = [np.searchsorted(at, moment[inside], side="right") - 1 for moment in (start, end)]
    before, after = (held[np.maximum(edge, 0)] for edge in edges)
    return int(np.maximum(after - before, 0).sum() / len(steps))


def recompute_time(ops: Table, marked: Array) -> Intervals:
    """When the device computes the forward pass again."""
    return intervals.union(*ops.take(marked).bounds)
