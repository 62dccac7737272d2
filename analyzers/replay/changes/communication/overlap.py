"""Collectives that start with the first gradient, hidden as far as the backward pass allows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.communication.transfers import has_role, sizes_bytes
from ddprof.analyzers.replay.graph.backward import backward_compute_ns
from ddprof.analyzers.replay.model import Graph, Scenario
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
        sizes, backward_ns = sizes_bytes(rank, rows), backward_compute_ns(rank)
        for s in np.unique(step):
            members = rows[step == s]
            total, volume = float(transfer[members].sum()), float(sizes[step == s].sum())
            tail = total * (min(1.0, tail_bytes / volume) if volume else 1 / FEWEST_TO_OVERLAP)
            left = max(tail, total - backward_ns[min(int(s), len(backward_ns) - 1)])
            transfer[members] *= left / total if total else 1.0
        result[rank.position] = np.round(transfer).astype(np.int64)
    return result
