"""Ranks and operations that a change applies to."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.model import Graph, RankGraph
from ddprof.findings import Change
from ddprof.tables import Array


def chosen(change: Change, graph: Graph, measures: Measures) -> list[tuple[RankGraph, float]]:
    """Graphs of the ranks that the change names (all, where it names none), each with its value (1.0 without one)."""
    wanted = dict(zip(change.ranks, change.values or (1.0,) * len(change.ranks), strict=False))
    graphs = []
    for rank in graph.ranks:
        number = measures.job.rank_ids[rank.position]
        if not change.ranks or number in wanted:
            graphs.append((rank, wanted.get(number, change.values[0] if change.values else 1.0)))
    return graphs


def scaled(times_ns: Array, is_changed: Array, share: float) -> Array:
    """The times (ns, int64), of which the changed ones take `share` of what they took; shape as `times_ns`."""
    return np.where(is_changed, np.round(times_ns * share), times_ns).astype(np.int64)
