"""Changes of the volume of communication and of its pieces: new transfers replace the recorded ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.gradients import GRADIENT_ROLES
from ddprof.analyzers.job.traffic.transfer_curve import TransferCurve
from ddprof.analyzers.replay.changes.communication.ddp_buckets import (
    Reduction,
    Schedule,
    gradient_curve,
    reductions,
    scheduled,
)
from ddprof.analyzers.replay.model import Graph, RankGraph
from ddprof.findings import Change
from ddprof.tables import Array
from ddprof.units import MIB

Retimed = tuple[Array, Array]  # rows of one rank's Ops, and the new transfers of these, ns


def fills_buckets(change: Change) -> bool:
    """True where `values` are the size of DDP's buckets and that of its first: their gradients' times schedule them."""
    return change.kind in ("rebucket", "merge_buckets") and len(change.values) > 1


def rebucket(change: Change, graph: Graph, measures: Measures, others: Sequence[Change]) -> dict[int, Retimed]:
    """Gradient buckets of `values` = (cap_bytes, first_bytes), reduced as soon as they are full.

    The last recorded bucket of each backward pass carries the exposed part of the new schedule; the others keep the
    part hidden behind later gradients. `others`: further changes, whose faster or smaller transfers apply.
    """
    measured = gradient_curve(measures)
    if measured is None:
        return {}
    # A run has few sizes of messages, and each comes in every pass: its cost is worked out once.
    cost, measured_cost = cache(_altered(measured, others).time_ns), cache(measured.time_ns)
    interference = graph.interference or execution_of(measures.job).limits.unmeasured_interference
    rows: dict[int, list[Array]] = {}
    times: dict[int, list[Array]] = {}
    for reduction in reductions(measures, graph):
        schedule = scheduled(reduction, cost, change.values[0], change.values[1], measured_cost, interference)
        for rank in graph.ranks:
            if rank.position in reduction.rows:
                of_rank = reduction.rows[rank.position]
                rows.setdefault(rank.position, []).append(of_rank)
                times.setdefault(rank.position, []).append(_hidden_then(rank, of_rank, reduction, schedule))
    return {p: (np.concatenate(rows[p]), np.round(np.concatenate(times[p])).astype(np.int64)) for p in rows}


def _hidden_then(rank: RankGraph, rows: Array, reduction: Reduction, schedule: Schedule) -> Array:
    """Transfers in the recorded calls: the hidden ones as long as the schedule has them (kernels run slower beside)."""
    room = np.append(np.diff(reduction.ready_ns), 0)
    times: Array = np.minimum(rank.ops.transfer_ns[rows], room).astype(float)
    total = float(times[:-1].sum())
    times *= min(1.0, schedule.hidden_ns / total) if total else 0.0
    times[-1] = schedule.tail_ns
    return times


def _altered(curve: TransferCurve, others: Sequence[Change]) -> TransferCurve:
    times, sizes = curve.times_ns.astype(float), curve.sizes_bytes
    for change in others:
        if change.kind == "scale_transfer" and change.target in GRADIENT_ROLES:
            times = times * (change.values[0] if change.values else 0.0)
        elif change.kind == "scale_volume":
            times = np.array([curve.time_ns(float(s) * change.values[0]) for s in sizes])
    return TransferCurve(sizes, times, curve.line, curve.is_prior)


def scaled_volume(change: Change, graph: Graph, measures: Measures, others: Sequence[Change]) -> dict[int, Retimed]:
    """All-reduces of gradients move `values[0]` of their bytes and take `values[1]` ns longer per MiB to pack."""
    curve = gradient_curve(measures)
    if curve is None:
        return {}
    share, packing_ns = change.values[0], change.values[1] if len(change.values) > 1 else 0.0
    cost = cache(curve.time_ns)
    result = {}
    for rank in graph.ranks:
        parts = [b.rows[rank.position] for b in reductions(measures, graph) if rank.position in b.rows]
        if not parts:
            continue
        rows = np.concatenate(parts)
        sizes = rank.facts.comms["size_bytes"][rank.ops.comm[rows]].astype(float)
        ratio = np.array([cost(s * share) / max(cost(s), 1e-9) for s in sizes.tolist()])
        times = rank.ops.transfer_ns[rows] * ratio + packing_ns * sizes / MIB
        result[rank.position] = (rows, np.round(times).astype(np.int64))
    return result
