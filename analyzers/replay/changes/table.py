"""From a Change (what a fix does, in words of the product) to a Scenario (what the simulator alters)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.job.copies import pageable_copies
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.bucket_sizes import merged_transfers, overlapped_transfers
from ddprof.analyzers.replay.changes.communication import RETIMING
from ddprof.analyzers.replay.changes.work import PACE, chosen, scale_host
from ddprof.analyzers.replay.graph.build import host_cause
from ddprof.analyzers.replay.model import Anchor, Graph, RankGraph, Scenario
from ddprof.findings import Change
from ddprof.tables import NULL, Array

PREFETCHED_US = 150.0  # a batch taken from a filled prefetch queue (measured on the healthy runs: 0.1 to 0.2 ms)
FILLED_SHARE = 0.8  # of the time between two saving ranges spent in blocking copies
PINNED_SHARE = 0.22  # of a pageable copy's time: ~5 GB/s through the driver's staging buffer against 20 to 25 on PCIe 4
GRAPH_LAUNCH_SHARE = 0.05  # host time left of a step when it is launched as one CUDA graph


def scenario_of(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """The scenario of one change; raises KeyError for a kind that is in neither KINDS nor RETIMING."""
    if change.kind in RETIMING:
        return combined((change,), graph, measures)
    return KINDS[change.kind](change, graph, measures)


def combined(changes: tuple[Change, ...], graph: Graph, measures: Measures) -> Scenario:
    """All changes at once; where pieces or volume of communication change, those transfers replace scaled ones."""
    result = Scenario()
    for change in changes:
        if change.kind not in RETIMING:
            result = result + scenario_of(change, graph, measures)
    for kind in RETIMING:  # buckets last: they are scheduled with the volume and speed of the others
        for change in (c for c in changes if c.kind == kind):
            result = replace(result, transfer_ns=_retimed(change, changes, graph, measures, result))
    return result


def _retimed(
    change: Change, changes: tuple[Change, ...], graph: Graph, measures: Measures, so_far: Scenario
) -> dict[int, Array]:
    transfers = dict(so_far.transfer_ns)
    for position, new in RETIMING[change.kind](change, graph, measures, changes).items():
        rank = next(r for r in graph.ranks if r.position == position)
        transfers[position] = transfers.get(position, rank.ops.transfer_ns).copy()
        transfers[position][new.rows] = new.transfer_ns
    return transfers


def _remove_host(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """The host spends no time in spans of the cause; copies they launched and blocking inside them go too."""
    host, dur, freed = {}, {}, {}
    for rank, _ in chosen(change, graph, measures):
        spans = host_cause(rank.facts, change.target)
        if change.target == "checkpoint":
            spans = _with_copies_between(rank.facts, spans)
        host[rank.position] = ((spans, 0.0),)
        merged = intervals.union(*spans)
        inside = _inside(merged, rank.anchors.start_ns)
        freed[rank.position] = frozenset(np.flatnonzero(inside).tolist())
        launched = _inside(merged, rank.ops.launch_ns) & ~rank.ops.is_comm
        if launched.any():
            dur[rank.position] = np.where(launched, 0, rank.ops.dur_ns)
    return Scenario(dur_ns=dur, host_scale=host, freed=freed)


def _with_copies_between(facts: RankFacts, spans: intervals.Intervals) -> intervals.Intervals:
    """Saving copies tensors to the host between the ranges that name it: blocking copies that fill a gap are saving."""
    start, end = intervals.union(*spans)
    if len(start) < 2:
        return start, end
    copies = intervals.union(*host_cause(facts, "host_sync"))
    filled = intervals.overlap(copies, end[:-1], start[1:]) >= FILLED_SHARE * (start[1:] - end[:-1])
    return intervals.union(np.concatenate((start, end[:-1][filled])), np.concatenate((end, start[1:][filled])))


def _inside(spans: intervals.Intervals, at_ns: Array) -> Array:
    if not len(spans[0]):
        return np.zeros(len(at_ns), bool)
    row = np.searchsorted(spans[0], at_ns, side="right") - 1
    return (row >= 0) & (at_ns < spans[1][np.maximum(row, 0)])


def _instant_loader(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Every batch is in the prefetch queue when it is asked for."""
    host, freed = {}, {}
    for rank, _ in chosen(change, graph, measures):
        start, end = host_cause(rank.facts, "dataloader")
        spans = intervals.union(start, end)
        length = spans[1] - spans[0]
        slow = length > PREFETCHED_US * 1e3
        total = float(length[slow].sum())
        left = PREFETCHED_US * 1e3 * int(slow.sum())
        freed[rank.position] = frozenset(np.flatnonzero(rank.anchors.kind == Anchor.LOADER).tolist())
        if total:
            host[rank.position] = (((spans[0][slow], spans[1][slow]), left / total),)
    return Scenario(host_scale=host, freed=freed)


def _no_sync(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Blocking calls outside loading and saving return at once."""
    freed = {}
    for rank, _ in chosen(change, graph, measures):
        kept = np.zeros(len(rank.anchors.kind), bool)
        for cause in ("checkpoint", "dataloader"):
            kept |= _inside(intervals.union(*host_cause(rank.facts, cause)), rank.anchors.start_ns)
        waits = (rank.anchors.kind == Anchor.SYNC) & ~kept
        freed[rank.position] = frozenset(np.flatnonzero(waits).tolist())
    return Scenario(freed=freed)


def _on_time(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Nobody waits for these ranks: as if they always arrived with their peers."""
    return Scenario(on_time=frozenset(rank.position for rank, _ in chosen(change, graph, measures)))


def _graph_launch(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """The step is launched as a whole: next to no host time between kernels, and no gap between them."""
    scaled = scale_host(Change("scale_host", change.ranks, (1.0 / GRAPH_LAUNCH_SHARE,)), graph, measures)
    queue = {rank.position: np.zeros_like(rank.ops.queue_lag_ns) for rank, _ in chosen(change, graph, measures)}
    return Scenario(host_scale=scaled.host_scale, queue_ns=queue)


def _scale_transfer(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Transfers of groups of the role (all, if none is named) take value times as long."""
    transfer = {}
    factor = change.values[0] if change.values else 0.0
    for rank in graph.ranks:
        mine = rank.ops.is_comm & _has_role(rank, measures, change.target)
        transfer[rank.position] = np.where(mine, np.round(rank.ops.transfer_ns * factor), rank.ops.transfer_ns).astype(
            np.int64
        )
    return Scenario(transfer_ns=transfer)


def _has_role(rank: RankGraph, measures: Measures, role: str) -> Array:
    """Operations whose group serves the role; every communication where the role is ''."""
    if not role:
        return np.asarray(rank.ops.is_comm)
    job = measures.job
    mine = job.members["rank"] == rank.position
    comm = job.members["comm"][mine]
    serves = job.groups["role"][job.instances["group"][job.members["instance"][mine]]] == role
    flag = np.zeros(len(rank.facts.comms), bool)
    flag[comm[serves]] = True
    result = np.zeros(len(rank.ops.comm), bool)
    known = rank.ops.comm >= 0
    result[known] = flag[rank.ops.comm[known]]
    return result


def _speed_groups(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Transfers of the groups (rows of JobFacts.groups, `values[1:]`) take `values[0]` times as long."""
    job, wanted = measures.job, [int(g) for g in change.values[1:]]
    transfer = {}
    for rank in graph.ranks:
        mine = job.members["rank"] == rank.position
        chosen = np.isin(job.instances["group"][job.members["instance"][mine]], wanted)
        rows = np.isin(rank.ops.comm, job.members["comm"][mine][chosen]) & rank.ops.is_comm
        scaled = np.round(rank.ops.transfer_ns * change.values[0])
        transfer[rank.position] = np.where(rows, scaled, rank.ops.transfer_ns).astype(np.int64)
    return Scenario(transfer_ns=transfer)


def _merge_buckets(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Consecutive collectives of the role gathered into buckets of `values[0]` bytes."""
    roles = {rank.position: _has_role(rank, measures, change.target) for rank in graph.ranks}
    transfers = merged_transfers(graph, roles, change.values[0])
    host = {}
    for rank in graph.ranks:
        comms = rank.facts.comms
        merged = roles[rank.position] & (transfers[rank.position] == 0) & (rank.ops.transfer_ns > 0)
        rows = rank.ops.comm[merged]
        rows = rows[comms["launch_end_ns"][rows] != NULL]
        # A call that is no longer made takes no host time either.
        host[rank.position] = (((comms["launch_ns"][rows], comms["launch_end_ns"][rows]), 0.0),)
    return Scenario(transfer_ns=transfers, host_scale=host)


def _overlap(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Collectives of the role start as soon as their gradients exist: what compute can hide is hidden."""
    roles = {rank.position: _has_role(rank, measures, change.target) for rank in graph.ranks}
    return Scenario(transfer_ns=overlapped_transfers(graph, roles, change.values[0]))


def _scale_kernels(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Marked kernels take value times as long. `target`: "fp32_gemm", or "optimizer", of whose kernels so many are gone
    that the gaps between them shrink alike.
    """
    dur: dict[int, Array] = {}
    queue: dict[int, Array] = {}
    host: dict[int, tuple[tuple[intervals.Intervals, float], ...]] = {}
    for rank in graph.ranks:
        facts = rank.facts
        if change.target == "fp32_gemm":
            groups = facts.kernel_groups
            names = groups["name"][groups["is_fp32"].astype(bool)]
            marked = np.isin(facts.device_ops["name"][rank.ops.row], names)
        else:
            phase = facts.phases["phase"] == Phase.OPTIMIZER
            spans = intervals.union(facts.phases["start_ns"][phase], facts.phases["end_ns"][phase])
            marked = _inside(spans, rank.ops.launch_ns)
            host[rank.position] = ((spans, change.values[1] if len(change.values) > 1 else 1.0),)
        marked &= ~rank.ops.is_comm
        if change.target == "optimizer":
            lag = rank.ops.queue_lag_ns
            queue[rank.position] = np.where(marked, np.round(lag * change.values[0]), lag).astype(np.int64)
        dur[rank.position] = np.where(marked, np.round(rank.ops.dur_ns * change.values[0]), rank.ops.dur_ns).astype(
            np.int64
        )
    return Scenario(dur_ns=dur, host_scale=host, queue_ns=queue)


def _hide_copies(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Copies from pageable host memory come from pinned memory: faster, and they block nobody."""
    dur, freed = {}, {}
    for rank in graph.ranks:
        facts = rank.facts
        if not facts.is_device_rank:
            continue
        pageable = pageable_copies(facts)[rank.ops.row]
        dur[rank.position] = np.where(pageable, np.round(rank.ops.dur_ns * PINNED_SHARE), rank.ops.dur_ns).astype(
            np.int64
        )
        launches = rank.ops.launch_ns[pageable]
        freed[rank.position] = frozenset(np.flatnonzero(np.isin(rank.anchors.start_ns, launches)).tolist())
    return Scenario(dur_ns=dur, freed=freed)


KINDS: Mapping[str, Callable[[Change, Graph, Measures], Scenario]] = {
    **PACE,
    "remove_host": _remove_host,
    "instant_loader": _instant_loader,
    "no_sync": _no_sync,
    "on_time": _on_time,
    "graph_launch": _graph_launch,
    "scale_transfer": _scale_transfer,
    "speed_groups": _speed_groups,
    "merge_buckets": _merge_buckets,
    "overlap": _overlap,
    "scale_kernels": _scale_kernels,
    "hide_copies": _hide_copies,
}
