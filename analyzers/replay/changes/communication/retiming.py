"""Changes of the volume of communication and of its pieces: new transfers replace the recorded ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from ddprof import intervals
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.script.calls import is_meeting
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.cost import TransferCurve, fit_cost
from ddprof.analyzers.job.traffic.kinds import GRADIENT_ROLES
from ddprof.analyzers.job.waiting.waits import members_of
from ddprof.analyzers.replay.changes.communication.ddp_buckets import (
    Reduction,
    Schedule,
    gradient_curve,
    reductions,
    scheduled,
)
from ddprof.analyzers.replay.changes.communication.transfers import has_role, sizes_bytes
from ddprof.analyzers.replay.model import Graph, RankGraph, Scenario, chosen
from ddprof.findings import Change
from ddprof.tables import NULL, Array
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


# Fewer collectives: small ones that share buckets (one latency per bucket, and the volume at the trace's own costs),
# and those that are not called any more: barriers, those of Python objects, and what could go (job/redundant).

VOLUME_SHARE = 0.1  # of a call's cost, where the trace holds one size only: such calls are far below any link's rate
# Where the trace holds no sizes, calls are taken to be of 1 MiB, and never so many share a bucket that nothing is left
# to overlap.
MOST_PER_BUCKET = 25  # calls: DDP's default bucket is 25 MiB
FEWEST_BUCKETS = 3  # per step


def merge_buckets(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Consecutive collectives of the role gathered into buckets of `values[0]` bytes; DDP's, whose first bucket holds
    `values[1]`, as soon as their gradients exist.
    """
    if fills_buckets(change):
        filled = rebucket(change, graph, measures, ())
        transfers = {rank.position: rank.ops.transfer_ns.copy() for rank in graph.ranks if rank.position in filled}
        for position, (rows, times_ns) in filled.items():
            transfers[position][rows] = times_ns
        return Scenario(transfer_ns=transfers)
    transfers, host = {}, {}
    for rank in graph.ranks:
        comms, has = rank.facts.comms, has_role(rank, measures, change.target)
        transfers[rank.position] = _merged_transfers(rank, np.flatnonzero(has), change.values[0])
        rows = rank.ops.comm[has & (transfers[rank.position] == 0) & (rank.ops.transfer_ns > 0)]
        rows = rows[comms["launch_end_ns"][rows] != NULL]
        # A call that is not made any more takes no host time either.
        host[rank.position] = (((comms["launch_ns"][rows], comms["launch_end_ns"][rows]), 0.0),)
    return Scenario(transfer_ns=transfers, host_scale=host)


def _merged_transfers(rank: RankGraph, rows: Array, cap_bytes: float) -> Array:
    """New transfers (ns), where consecutive operations of a step, among `rows`, share buckets of `cap_bytes`.

    The last operation of a bucket carries all of it; the others take no time.
    """
    transfer = rank.ops.transfer_ns.astype(np.float64)
    rows = rows[np.argsort(rank.ops.issued_ns[rows], kind="stable")]
    sizes = sizes_bytes(rank, rows)
    if not sizes.any():
        calls = len(rows) / max(1, len(rank.marks_ns))
        sizes[:] = cap_bytes / min(MOST_PER_BUCKET, max(2, calls // FEWEST_BUCKETS))
    step = np.searchsorted(rank.marks_ns, rank.ops.issued_ns[rows], side="right")
    model = fit_cost(sizes, transfer[rows])
    for bucket in _buckets(sizes, step, cap_bytes):
        members = rows[bucket]
        before = transfer[members].sum()
        # Without a model, the cost of one member and VOLUME_SHARE of the others'.
        together = before / len(bucket) * (1 + VOLUME_SHARE * (len(bucket) - 1))
        transfer[members] = 0.0
        transfer[members[-1]] = min(before, together if model is None else model.time_ns(float(sizes[bucket].sum())))
    return np.round(transfer).astype(np.int64)


def _buckets(sizes: Array, step: Array, cap_bytes: float) -> list[Array]:
    buckets: list[list[int]] = []
    filled = 0.0
    for i, size in enumerate(sizes.tolist()):
        if not buckets or step[i] != step[buckets[-1][-1]] or filled + size > cap_bytes:
            buckets.append([])
            filled = 0.0
        buckets[-1].append(i)
        filled += size
    return [np.array(b) for b in buckets]


def drop_meetings(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Drop barriers and collectives of Python objects."""
    gone = {rank.position: is_meeting(rank.facts) for rank in graph.ranks}
    calls = {rank.position: intervals.union(*rank.facts.meetings.bounds) for rank in graph.ranks}
    return _dropped(change, graph, measures, gone, calls)


def drop_needless(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Remove avoidable communication of the kind `target` (analyzers/job/redundant)."""
    kind = measures.needless.get(change.target)
    if kind is None:
        return Scenario()
    gone = {rank.position: kind.comms[rank.position] for rank in graph.ranks}
    calls = {rank.position: kind.host[rank.position] for rank in graph.ranks}
    return _dropped(change, graph, measures, gone, calls)


def _dropped(
    change: Change,
    graph: Graph,
    measures: Measures,
    gone_by_rank: Mapping[int, Array],
    calls_by_rank: Mapping[int, intervals.Intervals],
) -> Scenario:
    """Give the calls no time, and let nothing wait for them.

    A rank that is late at one of them stays late: the next collective waits for it.
    """
    transfer, host, freed, dissolved = {}, {}, {}, set[int]()
    members = measures.job.members
    for rank, _ in chosen(change, graph, measures):
        ops, gone = rank.ops, gone_by_rank[rank.position]
        rows = members_of(members, rank.position)
        dissolved |= set(members["instance"][rows[gone[members["comm"][rows]]]].tolist())
        here = ops.is_comm & gone[np.maximum(ops.comm, 0)] if len(gone) else ops.is_comm & False
        transfer[rank.position] = np.where(here, 0, ops.transfer_ns)
        calls = calls_by_rank[rank.position]
        host[rank.position] = ((calls, 0.0),)
        waits = intervals.contains(calls, rank.anchors.start_ns)
        waits |= (rank.anchors.target >= 0) & here[np.maximum(rank.anchors.target, 0)] if len(here) else waits
        freed[rank.position] = frozenset(np.flatnonzero(waits).tolist())
    return Scenario(transfer_ns=transfer, host_scale=host, freed=freed, dissolved=frozenset(dissolved))
