"""Collectives that start with the first gradient: what the backward pass can hide is hidden."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.communication.transfers import has_role, sizes_bytes
from ddprof.analyzers.replay.model import Graph, RankGraph, Scenario
from ddprof.findings import Change
from ddprof.tables import Array

FEWEST_TO_OVERLAP = 4  # buckets per step: with fewer there is next to nothing to overlap


def overlap(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Collectives of the role start as soon as their gradients exist: what compute can hide is hidden."""
    roles = {rank.position: has_role(rank, measures, change.target) for rank in graph.ranks}
    return Scenario(transfer_ns=_overlapped_transfers(graph, roles, change.values[0]))


def _overlapped_transfers(graph: Graph, chosen: Mapping[int, Array], tail_bytes: float) -> dict[int, Array]:
    """New transfers (ns) by position, where communication starts with the first gradient.

    Of the transfers of a step that part is left which exceeds the backward pass, and at least the last bucket, which
    nothing can hide: `tail_bytes` of the volume, or, where no sizes were recorded, one of FEWEST_TO_OVERLAP buckets.
    """
    result = {}
    for rank in graph.ranks:
        transfer = rank.ops.transfer_ns.astype(np.float64).copy()
        rows = np.flatnonzero(chosen[rank.position])
        step = np.searchsorted(rank.marks_ns, rank.ops.issued_ns[rows], side="right")
        sizes = sizes_bytes(rank, rows)
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
