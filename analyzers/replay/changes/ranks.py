"""Ranks that a change applies to."""

from __future__ import annotations

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.model import Graph, RankGraph
from ddprof.findings import Change


def chosen(change: Change, graph: Graph, measures: Measures) -> list[tuple[RankGraph, float]]:
    """Graphs of the ranks that the change names (all, where it names none), each with its value (1.0 without one)."""
    wanted = dict(zip(change.ranks, change.values or (1.0,) * len(change.ranks), strict=False))
    graphs = []
    for rank in graph.ranks:
        number = measures.job.rank_ids[rank.position]
        if not change.ranks or number in wanted:
            graphs.append((rank, wanted.get(number, change.values[0] if change.values else 1.0)))
    return graphs
