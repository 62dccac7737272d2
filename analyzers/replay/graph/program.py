"""One order for the nodes of all ranks: a replay then is a single pass, whatever the scenario.

Ranks advance in turn, each until it must wait for a communication whose members have not all arrived. That depends on
the order of their work and not on its duration, so one order holds for every scenario.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from ddprof.analyzers.replay.model import Node, Program, RankGraph
from ddprof.tables import Array

_Gate = tuple[int, bool, tuple[int, ...]]  # place in the rank's order, whether it is a FINISH, instances
_Turn = tuple[int, int, int]  # rank, half-open range of its order


def write_program(ranks: Sequence[RankGraph], members: Array, dissolved: frozenset[int] = frozenset()) -> Program:
    """The program of some ranks. `members`: members that each instance must gather; `dissolved` ones gather none."""
    links = [without(rank.links, dissolved) for rank in ranks]
    turns, is_broken = _turns(ranks, links, members.tolist())
    kind, index, rank = _in_turn(ranks, turns)
    nodes, anchors, streams = (
        np.array([(len(r.node_first), len(r.anchors.kind), stream_count(r)) for r in ranks], np.int64).reshape(-1, 3).T
    )
    is_host, is_comm = kind >= Node.ANCHOR, (kind == Node.POST) | (kind == Node.FINISH)
    flat = _numbered_through(ranks, _before(nodes), _before(streams), _before(anchors + 1))
    row = index + _before(nodes + anchors)[rank] + np.where(is_host, nodes[rank], 0)
    track, dep, dep_lag, section = (column[row] for column in flat)
    part = np.where(is_host, 2, is_comm.astype(np.int64))  # of `Contracted`
    met = zip(rank.tolist(), index.tolist(), is_comm.tolist(), strict=True)
    return Program(
        kind=kind.tolist(),
        node=_packed(index + _before(nodes)[rank]),
        track=track.tolist(),
        dep=_packed(dep),
        dep_lag=_packed(dep_lag),
        section=_packed(section),
        links=[links[r].get(i, ()) if meets else () for r, i, meets in met],
        at=_before(2 * nodes + anchors)[rank] + index + part * nodes[rank],
        rank=rank,
        is_broken=is_broken,
    )


def _packed(values: Array) -> Sequence[int]:
    """Compact array of ints; a list of Python ints takes five times the memory."""
    return array("q", values.astype(np.int64).tobytes())


def _before(count: Array) -> Array:
    """Cumulative counts of the ranks before each."""
    return np.asarray(np.cumsum(count) - count)


def _numbered_through(ranks: Sequence[RankGraph], nodes: Array, streams: Array, sections: Array) -> list[Array]:
    """Stream, dependency, its lag and host section of the nodes, then the anchors, of each rank.

    `nodes`, `streams`, `sections`: numbers of these on the ranks before each.
    """
    columns: list[list[Array]] = [[np.empty(0, np.int64)] for _ in range(4)]
    for at, rank in enumerate(ranks):
        ops, anchors, first = rank.ops, rank.anchors, rank.node_first
        node_of = np.append(ops.node, -1)  # the node of no operation
        waits_for = node_of[np.concatenate((ops.dep[first], anchors.target))]
        of_host = np.zeros(len(anchors.target), np.int64)
        own = (
            np.concatenate((ops.track[first], of_host)) + streams[at],
            np.where(waits_for >= 0, waits_for + nodes[at], -1),
            np.concatenate((ops.dep_lag_ns[first], anchors.end_ns - rank.offset_ns)),
            np.concatenate((ops.section[first], np.arange(len(of_host)))) + sections[at],
        )
        for column, part in zip(columns, own, strict=True):
            column.append(part)
    return [np.concatenate(column) for column in columns]


def without(links: Mapping[int, tuple[int, ...]], dissolved: frozenset[int]) -> Mapping[int, tuple[int, ...]]:
    """The instances of each node that its rank still has to wait for."""
    if not dissolved:
        return links
    return {node: tuple(i for i in instances if i not in dissolved) for node, instances in links.items()}


def stream_count(rank: RankGraph) -> int:
    """Number of streams that the rank's operations use."""
    return int(rank.ops.track.max(initial=-1)) + 1


def _in_turn(ranks: Sequence[RankGraph], turns: Sequence[_Turn]) -> tuple[Array, Array, Array]:
    """Kind and index of every node, and its rank, in the order of the turns."""
    if not turns:
        none = np.empty(0, np.int64)
        return none, none, none
    who, begin, end = np.array(turns, np.int64).T
    length = end - begin
    rank_of = np.repeat(who, length)
    within = np.arange(len(rank_of)) + np.repeat(begin - (np.cumsum(length) - length), length)
    count = np.array([len(rank.order.kind) for rank in ranks])
    row = (np.cumsum(count) - count)[rank_of] + within
    kind = np.concatenate([rank.order.kind for rank in ranks])[row]
    return kind, np.concatenate([rank.order.index for rank in ranks])[row], rank_of


def _turns(
    ranks: Sequence[RankGraph], links: Sequence[Mapping[int, tuple[int, ...]]], needed: list[int]
) -> tuple[list[_Turn], bool]:
    """The turns that the ranks take, and whether any had to go on without members that never arrive."""
    gates = [_gates(rank, own) for rank, own in zip(ranks, links, strict=True)]
    whole = [len(rank.order.kind) for rank in ranks]
    passed, begun = [0] * len(ranks), [0] * len(ranks)
    arrived = [0] * len(needed)
    waiting: dict[int, list[int]] = {}
    ready = deque(range(len(ranks)))
    turns: list[_Turn] = []
    is_broken = False
    while ready:
        index = ready.popleft()
        own, until = gates[index], whole[index]
        for gate in range(passed[index], len(own)):
            at, is_finish, instances = own[gate]
            stuck = -1
            for instance in instances:
                if is_finish:
                    if arrived[instance] < needed[instance]:
                        stuck = instance
                        break
                    continue
                arrived[instance] += 1
                if arrived[instance] >= needed[instance] and instance in waiting:
                    ready.extend(waiting.pop(instance))
            if stuck >= 0:
                passed[index], until = gate, at
                waiting.setdefault(stuck, []).append(index)
                break
        turns.append((index, begun[index], until))
        begun[index] = until
        if not ready and waiting:  # a truncated window: the smallest instance goes, or all would wait for ever
            is_broken = True
            instance = min(waiting)
            needed[instance] = arrived[instance]
            ready.extend(waiting.pop(instance))
    return turns, is_broken


def _gates(rank: RankGraph, links: Mapping[int, tuple[int, ...]]) -> list[_Gate]:
    """Arrivals of a rank at other ranks' communications, and waits for them, in order."""
    kind, index = rank.order.kind, rank.order.index
    rows = np.flatnonzero((kind == Node.POST) | (kind == Node.FINISH))
    found = zip(rows.tolist(), (kind[rows] == Node.FINISH).tolist(), index[rows].tolist(), strict=True)
    return [(at, is_finish, links[node]) for at, is_finish, node in found if links.get(node)]
