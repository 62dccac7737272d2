"""Communication with other bucket sizes: merging what was split, hiding what was exposed.

A bucket costs what a line of latency and bandwidth through the trace's own size -> transfer points says.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.job.traffic.cost import CostModel, fit_cost
from ddprof.analyzers.replay.model import Graph, RankGraph
from ddprof.tables import NULL, Array

FEWEST_TO_OVERLAP = 4  # buckets: a model smaller than a few default buckets needs smaller ones to overlap at all
VOLUME_SHARE = 0.1
# Calls that share a bucket where the trace holds no sizes: of 1 MiB each if DDP's default takes them, but never so many
# that nothing is left to overlap.
MOST_PER_BUCKET, FEWEST_BUCKETS = 25, 3


def merged_transfers(graph: Graph, chosen: Mapping[int, Array], cap_bytes: float) -> dict[int, Array]:
    """New transfer (ns) per operation when consecutive chosen ones of a step share buckets of `cap_bytes`.

    The last of a bucket carries it all: the latency once, and the volume at the cost of the trace's own points.
    """
    result = {}
    for rank in graph.ranks:
        transfer = rank.ops.transfer_ns.astype(np.float64).copy()
        rows = np.flatnonzero(chosen[rank.position])
        rows = rows[np.argsort(rank.ops.issued_ns[rows], kind="stable")]
        sizes = _sizes_bytes(rank, rows)
        if not sizes.any():
            calls = len(rows) / max(1, len(rank.marks_ns))
            sizes[:] = cap_bytes / min(MOST_PER_BUCKET, max(2, calls // FEWEST_BUCKETS))
        step = np.searchsorted(rank.marks_ns, rank.ops.issued_ns[rows], side="right")
        model = fit_cost(sizes, transfer[rows])
        for bucket in _buckets(sizes, step, cap_bytes):
            members = rows[bucket]
            before = transfer[members].sum()
            transfer[members] = 0.0
            transfer[members[-1]] = min(before, _bucket_ns(model, sizes[bucket], before))
        result[rank.position] = np.round(transfer).astype(np.int64)
    return result


def _sizes_bytes(rank: RankGraph, rows: Array) -> Array:
    """What each of the operations carries; 0 where that was not recorded."""
    sizes = rank.facts.comms["size_bytes"][rank.ops.comm[rows]].astype(float)
    return np.where(sizes == NULL, 0.0, sizes)


def _bucket_ns(model: CostModel | None, sizes: Array, before_ns: float) -> float:
    """Cost of one bucket in place of its members. Without a model: one member's cost and a tenth of the others'.

    A kind of call with one size only is judged latency-bound for being far below any link's rate, so little of it is
    volume.
    """
    if model is not None:
        return model.time_ns(float(sizes.sum()))
    mean = before_ns / len(sizes)
    return mean * (1 + VOLUME_SHARE * (len(sizes) - 1))


def _buckets(sizes: Array, step: Array, cap_bytes: float) -> list[Array]:
    buckets: list[list[int]] = []
    filled = 0.0
    for i, size in enumerate(sizes.tolist()):
        fresh = not buckets or step[i] != step[buckets[-1][-1]] or filled + size > cap_bytes
        if fresh:
            buckets.append([i])
            filled = size
        else:
            buckets[-1].append(i)
            filled += size
    return [np.array(b) for b in buckets]


def overlapped_transfers(graph: Graph, chosen: Mapping[int, Array], tail_bytes: float) -> dict[int, Array]:
    """New transfer (ns) per operation when communication could start with the first gradient.

    Of each step, what exceeds the backward pass is left, and at least the last bucket, which nothing can hide
    (`tail_bytes`; where no sizes were recorded, one of the fewest that overlap at all).
    """
    result = {}
    for rank in graph.ranks:
        transfer = rank.ops.transfer_ns.astype(np.float64).copy()
        rows = np.flatnonzero(chosen[rank.position])
        step = np.searchsorted(rank.marks_ns, rank.ops.issued_ns[rows], side="right")
        sizes = _sizes_bytes(rank, rows)
        for s in np.unique(step):
            members = rows[step == s]
            total, volume = float(transfer[members].sum()), float(sizes[step == s].sum())
            tail = total * (min(1.0, tail_bytes / volume) if volume else 1 / FEWEST_TO_OVERLAP)
            left = max(tail, total - _backward_ns(rank, int(s)))
            transfer[members] *= left / total if total else 1.0
        result[rank.position] = np.round(transfer).astype(np.int64)
    return result


def _backward_ns(rank: RankGraph, step: int) -> float:
    """Device time of the backward pass of a step: from phase ranges and launches, else two thirds of the compute."""
    lo = rank.origin_ns if step == 0 else int(rank.marks_ns[step - 1])
    hi = int(rank.marks_ns[min(step, len(rank.marks_ns) - 1)])
    if not rank.facts.is_device_rank:
        return float((hi - lo) * 0.5)
    issued = rank.ops.issued_ns
    inside = (issued >= lo) & (issued < hi) & ~rank.ops.is_comm
    phases = rank.facts.phases
    of_step = (phases["start_ns"] >= lo) & (phases["start_ns"] < hi)
    ends = phases["end_ns"][of_step & (phases["phase"] == Phase.FORWARD)]
    if not len(ends) or not rank.has_host:  # without launches a phase of the host says nothing about when kernels ran
        return float(rank.ops.dur_ns[inside].sum()) * 2 / 3
    starts = phases["start_ns"][of_step & (phases["phase"] == Phase.OPTIMIZER)]
    until = int(starts.max()) if len(starts) else hi
    backward = inside & (issued >= ends.max()) & (issued < until)
    return float(rank.ops.dur_ns[backward].sum())
