"""Device memory of a rank: its peak, the parts of the peak, and recomputation that saves memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import NO_STRING, Phase, RankFacts, Work
from ddprof.intervals import Intervals
from ddprof.model import RankTrace
from ddprof.tables import NULL, Array, Table, distinct

CURVE_POINTS = 400  # of a rank's memory over time: more than a screen can show, a few kB
IN_ORDER = 3  # kernels that follow one another as in the forward pass: fewer may do so by chance (two products)
BACKWARD = "backward"
PHASES = ("forward", "backward", "optimizer", "elsewhere")


def device_memory(trace: RankTrace, ops: Table, steps: Table) -> dict[str, Any]:
    """`memory_summary`, and `kept_bytes`: bytes per step that keeping recomputed activations would take. Peaks come
    from the capture where the recording has none. {} where nothing is known.
    """
    summary = memory_summary(trace)
    marked = recomputed(ops, trace.strings)
    if summary and marked.any():
        memory = trace.memory.take(np.flatnonzero(trace.memory["device"] != NULL))
        kept = _kept_bytes(memory, recomputing(ops, marked), steps)
        summary |= {"kept_bytes": kept} if kept is not None else {}
    counts, total = trace.sidecar.allocator, trace.device.total_memory_bytes or trace.sidecar.device.total_memory_bytes
    if not summary and counts.peak_allocated_bytes and total:
        summary = {"peak_allocated_bytes": counts.peak_allocated_bytes, "total_bytes": total}
        summary |= {"peak_reserved_bytes": counts.peak_reserved_bytes} if counts.peak_reserved_bytes else {}
    return summary


def memory_summary(trace: RankTrace) -> dict[str, Any]:
    """Device memory by the allocator: `peak_allocated_bytes`, `peak_reserved_bytes`, and `curve` with lists `at_ns`
    (own clock), `allocated_bytes`, `reserved_bytes` (null: not recorded). {} if not recorded.
    """
    table = trace.memory
    device = table["device"] != NULL
    summary: dict[str, Any] = {}
    for column in ("allocated_bytes", "reserved_bytes"):
        values = table[column][device & (table[column] != NULL)]
        if len(values):
            summary[f"peak_{column}"] = int(values.max())
    if summary:
        summary["curve"] = _memory_curve(table.take(np.flatnonzero(device)))
    if summary and trace.device.total_memory_bytes:
        summary["total_bytes"] = trace.device.total_memory_bytes
    return summary


def _memory_curve(table: Table) -> dict[str, list[int | None]]:
    """At most `CURVE_POINTS` points, each the maximum of its stretch of time, so that the peak is kept."""
    order = np.argsort(table["ts_ns"], kind="stable")
    cuts = np.unique(np.linspace(0, len(order), CURVE_POINTS + 1).astype(np.int64))[:-1]
    curve: dict[str, list[int | None]] = {"at_ns": table["ts_ns"][order][cuts].tolist()}
    for column in ("allocated_bytes", "reserved_bytes"):
        highest = np.maximum.reduceat(table[column][order], cuts)
        curve[column] = [None if value == NULL else value for value in highest.tolist()]
    return curve


def recomputed(ops: Table, strings: Sequence[str]) -> Array:
    """Mask of device operations that recompute the forward pass (activation checkpointing); shape (device_ops,).

    The autograd engine's thread launches the kernels of backward operators. Where it launches the same operators and
    kernels in the same order as the forward pass, among them operators with a backward operator of their own
    (`aten::native_layer_norm`, `aten::native_layer_norm_backward`), it recomputes activations.
    """
    marked = np.zeros(len(ops), bool)
    rows = np.flatnonzero((ops["work"] == Work.COMPUTE) & (ops["launch_ns"] != NULL) & (ops["operator"] != NO_STRING))
    rows = rows[np.argsort(ops["launch_ns"][rows], kind="stable")]
    operator, thread = ops["operator"][rows], ops["thread"][rows]
    used = np.unique(operator)
    backwards = used[[BACKWARD in strings[int(code)].lower() for code in used]] if len(used) else used
    engine = thread[np.isin(operator, backwards)]
    if not len(engine):
        return marked
    threads, counts = np.unique(engine, return_counts=True)
    back = thread == threads[np.argmax(counts)]
    anchors = _with_backward(np.unique(operator[~back]), backwards, strings)
    again = np.isin(operator, anchors) & back
    if not again.any():
        return marked
    _, kind = distinct(operator, ops["name"][rows])
    repeats = _repeats(kind[~back], kind[back])
    run = np.cumsum(np.append(True, repeats[1:] != repeats[:-1]))
    real = np.isin(run, run[again[back] & repeats])
    marked[rows[back][repeats & real]] = True
    return marked


def _with_backward(forward: Array, backwards: Array, strings: Sequence[str]) -> Array:
    """Operators of the forward pass (codes) whose backward operator was launched too."""
    names = [strings[int(code)] for code in backwards]
    stems = {code: strings[int(code)].removesuffix("_forward") + "_" + BACKWARD for code in forward.tolist()}
    return np.array([c for c, stem in stems.items() if any(name.startswith(stem) for name in names)], np.int64)


def _repeats(forward: Array, backward: Array) -> Array:
    """Mask of backward kernels inside a run of IN_ORDER kernels that also occurs in the forward pass."""
    repeats = np.zeros(len(backward), bool)
    if min(len(forward), len(backward)) < IN_ORDER:
        return repeats
    starts = np.isin(_in_order(backward), _in_order(forward))
    for offset in range(IN_ORDER):
        repeats[offset : len(backward) - IN_ORDER + 1 + offset] |= starts
    return repeats


def _in_order(kinds: Array) -> Array:
    """One number per run of IN_ORDER consecutive kinds, shape (kinds - IN_ORDER + 1,)."""
    base = 1 << 20  # more kinds of kernels than any program has
    number = np.zeros(len(kinds) - IN_ORDER + 1, np.int64)
    for offset in range(IN_ORDER):
        number = number * base + kinds[offset : len(kinds) - IN_ORDER + 1 + offset]
    return number


def recomputing(ops: Table, marked: Array) -> Intervals:
    """Intervals in which the host launches recomputation, one per block, with no other launch inside."""
    rows = np.flatnonzero((ops["launch_ns"] != NULL) & (ops["work"] == Work.COMPUTE))
    rows = rows[np.argsort(ops["launch_ns"][rows], kind="stable")]
    again = marked[rows]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], again, [False])).astype(np.int8)))
    first, last = rows[edges[::2]], rows[edges[1::2] - 1]
    return ops["launch_ns"][first], ops["launch_end_ns"][last]


def _kept_bytes(memory: Table, blocks: Intervals, steps: Table) -> int | None:
    """Memory per step that keeping the recomputed tensors would take: the growth during recomputation.

    `memory`: of the device alone. None where the allocator was not recorded.
    """
    rows = np.flatnonzero(memory["allocated_bytes"] != NULL)
    rows = rows[np.argsort(memory["ts_ns"][rows], kind="stable")]
    if not len(rows) or not len(steps):
        return None
    start, end = blocks
    inside = (start >= steps["mark_ns"][0]) & (end <= steps["mark_end_ns"][-1])
    at, held = memory["ts_ns"][rows], memory["allocated_bytes"][rows]
    edges = [np.searchsorted(at, moment[inside], side="right") - 1 for moment in (start, end)]
    before, after = (held[np.maximum(edge, 0)] for edge in edges)
    return int(np.maximum(after - before, 0).sum() / len(steps))


def recompute_time(ops: Table, marked: Array) -> Intervals:
    """Intervals in which the device recomputes the forward pass."""
    return intervals.union(*ops.bounds_of(marked))


class PeakParts(Struct, frozen=True):
    """Tensor bytes at the peak inside the steps: `before` at the step's start and the net growth of each of PHASES,
    which sum to `peak`. `step`: position; `phase`: that of the peak.
    """

    peak: int
    step: int
    at_ns: int
    phase: str
    before: int
    grown: tuple[int, ...]


def peak_parts(facts: RankFacts) -> PeakParts | None:
    """Parts of the rank's memory peak; None where totals over time, steps or phases were not recorded.

    Totals do not tell parameters, gradients and optimizer state apart, and nothing is guessed. Where recordings have
    more than CURVE_POINTS totals, each stands for the largest of several consecutive ones.
    """
    at, held = _curve(facts)
    spans = _phases(facts)
    inside = facts.is_issued_in_steps(at)
    if not inside.any() or not any(len(start) for start, _ in spans):
        return None
    top = int(np.flatnonzero(inside)[held[inside].argmax()])
    step = int(np.searchsorted(facts.steps["mark_ns"], at[top], side="right")) - 1
    first = int(np.searchsorted(at, facts.steps["mark_ns"][step]))
    begin = max(0, first - 1)  # what was held when the step began: the last total before it, or its first
    change = np.diff(held[begin : top + 1])
    phase = np.full(len(at), len(spans))
    for number, span in reversed(list(enumerate(spans))):
        phase[intervals.contains(span, at)] = number
    grown = np.bincount(phase[begin + 1 : top + 1], weights=change, minlength=len(PHASES))
    where = PHASES[int(phase[top])]
    return PeakParts(int(held[top]), step, int(at[top]), where, int(held[begin]), tuple(map(int, grown)))


def _curve(facts: RankFacts) -> tuple[Array, Array]:
    """Times of the recorded totals, ns, and tensor bytes at each."""
    curve = facts.memory.get("curve") or {}
    at = np.array(curve.get("at_ns") or [], np.int64)
    held = np.array([NULL if value is None else value for value in curve.get("allocated_bytes") or []], np.int64)
    return at[held != NULL], held[held != NULL]


def _phases(facts: RankFacts) -> list[Intervals]:
    backward = facts.phase_time(Phase.BACKWARD)
    if not len(backward[0]):
        backward = intervals.union(*facts.engine_passes.bounds)
    return [facts.phase_time(Phase.FORWARD), backward, facts.phase_time(Phase.OPTIMIZER)]
