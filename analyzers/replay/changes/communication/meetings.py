"""Collectives that are not called any more: barriers and those of Python objects, and what could go (job/needless)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.script.meetings import is_meeting
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.waiting.members import members_of
from ddprof.analyzers.replay.changes.ranks import chosen
from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.findings import Change
from ddprof.tables import Array


def drop_meetings(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """The ranks do not meet in barriers and collectives of Python objects."""
    gone = {rank.position: is_meeting(rank.facts) for rank in graph.ranks}
    calls = {rank.position: intervals.union(*rank.facts.meetings.bounds) for rank in graph.ranks}
    return _dropped(change, graph, measures, gone, calls)


def drop_needless(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """What could go of the kind `target` (analyzers/job/needless) goes."""
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
    """The calls take no time, and what waits for them waits no more.

    A rank that is late at one of them stays late: the next collective waits for it.
    """
    transfer, host, freed, dissolved = {}, {}, {}, set[int]()
    members = measures.job.members
    for rank, _ in chosen(change, graph, measures):
        ops, gone = rank.ops, gone_by_rank[rank.position]
        mine = members_of(members, rank.position)
        dissolved |= set(members["instance"][mine[gone[members["comm"][mine]]]].tolist())
        here = ops.is_comm & gone[np.maximum(ops.comm, 0)] if len(gone) else ops.is_comm & False
        transfer[rank.position] = np.where(here, 0, ops.transfer_ns)
        calls = calls_by_rank[rank.position]
        host[rank.position] = ((calls, 0.0),)
        waits = intervals.contains(calls, rank.anchors.start_ns)
        waits |= (rank.anchors.target >= 0) & here[np.maximum(rank.anchors.target, 0)] if len(here) else waits
        freed[rank.position] = frozenset(np.flatnonzero(waits).tolist())
    return Scenario(transfer_ns=transfer, host_scale=host, freed=freed, dissolved=frozenset(dissolved))
