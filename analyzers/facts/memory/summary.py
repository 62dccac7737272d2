"""How much memory of its device a rank uses, by the recording or, where that is silent, by the capture."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddprof.analyzers.facts.memory.recompute import kept_bytes, recomputed, recomputing
from ddprof.model import RankTrace
from ddprof.tables import NULL, Table

CURVE_POINTS = 400  # of a rank's memory over time: more than a screen can show, a few kB


def device_memory(trace: RankTrace, ops: Table, steps: Table) -> dict[str, Any]:
    """`memory_summary`, and `kept_bytes`: what keeping all activations would take per step, where some are computed
    again. Peaks of the whole run from the capture, where the recording has none. {} where nothing is known.
    """
    found = memory_summary(trace)
    marked = recomputed(ops, trace.strings)
    if found and marked.any():
        memory = trace.memory.take(np.flatnonzero(trace.memory["device"] != NULL))
        kept = kept_bytes(memory, recomputing(ops, marked), steps)
        found |= {"kept_bytes": kept} if kept is not None else {}
    counts, total = trace.sidecar.allocator, trace.device.total_memory_bytes or trace.sidecar.device.total_memory_bytes
    if not found and counts.peak_allocated_bytes and total:
        found = {"peak_allocated_bytes": counts.peak_allocated_bytes, "total_bytes": total}
        found |= {"peak_reserved_bytes": counts.peak_reserved_bytes} if counts.peak_reserved_bytes else {}
    return found


def memory_summary(trace: RankTrace) -> dict[str, Any]:
    """Device memory as the allocator reported it: `peak_allocated_bytes`, `peak_reserved_bytes`, and `curve`, the same
    over time: `at_ns` (own clock), `allocated_bytes`, `reserved_bytes` (lists; null: not recorded). {} if not recorded.
    """
    table = trace.memory
    device = table["device"] != NULL
    found: dict[str, Any] = {}
    for column in ("allocated_bytes", "reserved_bytes"):
        values = table[column][device & (table[column] != NULL)]
        if len(values):
            found[f"peak_{column}"] = int(values.max())
    if found:
        found["curve"] = _memory_curve(table.take(np.flatnonzero(device)))
    if found and trace.device.total_memory_bytes:
        found["total_bytes"] = trace.device.total_memory_bytes
    return found


def _memory_curve(table: Table) -> dict[str, list[int | None]]:
    """At most `CURVE_POINTS` points, each the maximum of its stretch of time, so that the peak is never lost."""
    order = np.argsort(table["ts_ns"], kind="stable")
    cuts = np.unique(np.linspace(0, len(order), CURVE_POINTS + 1).astype(np.int64))[:-1]
    curve: dict[str, list[int | None]] = {"at_ns": table["ts_ns"][order][cuts].tolist()}
    for column in ("allocated_bytes", "reserved_bytes"):
        highest = np.maximum.reduceat(table[column][order], cuts)
        curve[column] = [None if value == NULL else value for value in highest.tolist()]
    return curve
