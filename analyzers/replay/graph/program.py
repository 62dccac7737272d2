"""One order for the nodes of all ranks: a replay then is a single pass, whatever the scenario.

Ranks advance in turn, each until it must wait for a communication whose members have not all arrived. That depends on
the order of their work and not on its duration, so one order holds for every scenario.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from itertools import chain

import numpy as np

from ddprof.analyzers.replay.model import Met, Node, Program, RankGraph
from ddprof.tables import Array

# Of each gate the place in the rank's order, whether it is a FINISH, instances.
_Gates = tuple[Sequence[int], Sequence[int], list[Met]]
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
    node = index + _before(nodes)[rank]
    met = [*chain.from_iterable(links), ()]  # a host meets nobody
    return Program(
        kind=kind.astype(np.uint8).tobytes(),
        node=packed(node, "i"),
        track=packed(track, "i"),
        dep=packed(dep, "i"),
        dep_lag=packed(dep_lag),
        section=packed(section, "i"),
        links=list(map(met.__getitem__, np.where(is_host, -1, node).tolist())),
        at=_before(2 * nodes + anchors)[rank] + index + part * nodes[rank],
        rank=rank,
        is_broken=is_broken,
    )


def packed(values: Array, code: str = "q") -> Sequence[int]:
    """Python ints, of `code` bytes each: a list takes 40. Of nodes and streams there are far fewer than 2^31."""
    return array(code, values.astype(code).tobytes())


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
        parts = (
            np.concatenate((ops.track[first], of_host)) + streams[at],
            np.where(waits_for >= 0, waits_for + nodes[at], -1),
            np.concatenate((ops.dep_lag_ns[first], anchors.end_ns - rank.offset_ns)),
            np.concatenate((ops.section[first], np.arange(len(of_host)))) + sections[at],
        )
        for column, part in zip(columns, parts, strict=True):
            column.append(part)
    return [np.concatenate(column) for column in columns]


def without(links: Sequence[Met], dissolved: frozenset[int]) -> Sequence[Met]:
    """The instances of each node that its rank still has to wait for."""
    return [tuple(i for i in met if i not in dissolved) for met in links] if dissolved else links


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


def _turns(ranks: Sequence[RankGraph], links: Sequence[Sequence[Met]], missing: list[int]) -> tuple[list[_Turn], bool]:
    """The turns that the ranks take, and whether any had to go on without members that never arrive. `missing`: how
    many members of each instance have yet to arrive.
    """
    gates = [_gates(rank, of_rank) for rank, of_rank in zip(ranks, links, strict=True)]
    whole = [len(rank.order.kind) for rank in ranks]
    passed, begun = [0] * len(ranks), [0] * len(ranks)
    waiting: dict[int, list[int]] = {}
    ready = deque(range(len(ranks)))
    turns: list[_Turn] = []
    is_broken = False
    while ready:
        index = ready.popleft()
        (at, is_finish, met), until = gates[index], whole[index]
        for gate in range(passed[index], len(met)):
            if not is_finish[gate]:
                for instance in met[gate]:
                    missing[instance] -= 1
                    if missing[instance] <= 0 and instance in waiting:
                        ready.extend(waiting.pop(instance))
                continue
            for instance in met[gate]:
                if missing[instance] > 0:
                    passed[index], until = gate, at[gate]
                    waiting.setdefault(instance, []).append(index)
                    break
            else:
                continue
            break
        turns.append((index, begun[index], until))
        begun[index] = until
        if not ready and waiting:  # a truncated window: the smallest instance goes, or all would wait for ever
            is_broken = True
            instance = min(waiting)
            missing[instance] = 0
            ready.extend(waiting.pop(instance))
    return turns, is_broken


def _gates(rank: RankGraph, links: Sequence[Met]) -> _Gates:
    """Gates: where a rank arrives at other ranks' communications, and where it waits for them; in order."""
    kind, index = rank.order.kind, rank.order.index
    rows = np.flatnonzero((kind == Node.POST) | (kind == Node.FINISH))
    met = list(map(links.__getitem__, index[rows].tolist()))
    return packed(rows, "i"), (kind[rows] == Node.FINISH).tobytes(), met
