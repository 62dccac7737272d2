"""From JobFacts to the Graph that is replayed: the dependencies of every rank, contracted.

Method: Lumos (MLSys'25) for edges between streams; a communication starts when its last member has arrived (OSDI'25).
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from ddprof.analyzers.execution.choose import execution_of, rank_execution
from ddprof.analyzers.execution.operations import NEVER, Operations
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import knows_launches
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.waiting.waits import members_of
from ddprof.analyzers.replay.graph.dependencies import find_anchors, find_dependencies, previous_end
from ddprof.analyzers.replay.graph.program import write_program
from ddprof.analyzers.replay.host_time import HostTimeline, contract
from ddprof.analyzers.replay.model import Anchor, Anchors, Graph, Met, Node, Ops, Order, RankGraph, Scenario
from ddprof.tables import NULL, Array

DEFAULT_LAUNCH_LAG_NS = 6_000  # from a launch to the start on an idle stream, where too few operations show it
DEFAULT_QUEUE_LAG_NS = 1_000  # from one operation's end to the next one's start, where too few operations show it
NO_LIMIT = np.iinfo(np.int64).max


def build_graph(job: JobFacts) -> Graph:
    """The reduced graph of the whole job."""
    arrived, shortest = _last_arrivals(job), _shortest(job)
    ranks = tuple(_rank_graph(job, p, arrived, shortest) for p in range(len(job.ranks)))
    met = chain.from_iterable(chain.from_iterable(rank.links for rank in ranks))
    members = np.bincount(np.fromiter(met, np.int64), minlength=len(job.instances))
    facts = [rank.facts for rank in ranks]
    return Graph(
        ranks,
        members,
        float(np.mean([measured_span_ns(rank) for rank in ranks])),
        write_program(ranks, members),
        tuple(contract(rank, Scenario(), HostTimeline(rank, Scenario())) for rank in ranks),
        execution_of(job).interference(facts),
    )


def measured_span_ns(rank: RankGraph) -> int:
    """Time from the first step's start to the last mark, or to a later end of a device operation launched before it."""
    last = int(rank.marks_ns[-1]) if rank.has_host else rank.begin_ns
    ends = rank.ops.end_ns[rank.ops.launch_ns < int(rank.marks_ns[-1])]
    return max([last, *([int(ends.max())] if len(ends) else [])]) - rank.begin_ns


def _last_arrivals(job: JobFacts) -> Array:
    """Latest possible arrival of the last member, for each member of an instance: own clock, error included."""
    members, positions = job.members, range(len(job.ranks))
    offset = np.array([job.clock.offset_ns(p) for p in positions], np.int64)[members["rank"]]
    errors = [job.clock.domains[job.clock.domain_of[p]].error_ns for p in positions]
    error = np.array([NO_LIMIT // 2 if e is None else e for e in errors], np.int64)[members["rank"]]
    arrival = np.full(len(job.instances), NEVER)
    np.maximum.at(arrival, members["instance"], members["start_ns"] - offset)
    latest: Array = arrival[members["instance"]] + offset + error
    return latest


def _rank_graph(job: JobFacts, position: int, arrived_ns: Array, shortest_ns: Array) -> RankGraph:
    facts = job.ranks[position]
    execution = rank_execution(facts)
    moved = execution.operations(facts)
    rows = members_of(job.members, position)
    arrived = np.full(len(facts.comms), NEVER)
    np.maximum.at(arrived, job.members["comm"][rows], arrived_ns[rows])
    anchors = find_anchors(facts, moved, execution, arrived)
    origin = int(facts.steps["mark_ns"][0])
    begins = np.concatenate(([origin], anchors.end_ns))
    section = np.maximum(np.searchsorted(begins, moved.launch_ns, side="right") - 1, 0)
    dep = find_dependencies(facts, moved) if execution.waits_between_streams else np.full(len(moved.row), -1)
    launch_lag, queue_lag, dep_lag = _lags(moved, dep)
    node, first, last = _chains(moved, section, dep, anchors)
    ops = Ops(
        **vars(moved),
        dep=dep.astype(np.int32),  # numbers of operations: many, and none near 2^31
        launch_lag_ns=launch_lag,
        queue_lag_ns=queue_lag,
        dep_lag_ns=dep_lag,
        transfer_ns=_transfers(job, position, moved, anchors, shortest_ns),
        section=section.astype(np.int32),
        node=node.astype(np.int32),
    )
    return RankGraph(
        facts=facts,
        execution=execution,
        position=position,
        origin_ns=origin,
        begin_ns=max(origin, int(facts.steps["start_ns"][0])),
        offset_ns=job.clock.offset_ns(position),
        ops=ops,
        anchors=anchors,
        marks_ns=_marks_ns(facts),
        node_first=first,
        node_last=last,
        links=_links(job, position, ops, len(first)),
        order=_order(ops, anchors, first, last),
        has_host=knows_launches(facts),
    )


def _marks_ns(facts: RankFacts) -> Array:
    """When the host passes each mark. A window without marks that ends with the device's work has its last one where
    the host has done all that is recorded of it: the host does not wait there."""
    marks: Array = facts.steps["mark_end_ns"].copy()
    ops = facts.device_ops
    calls = ops["launch_end_ns"][ops["launch_ns"] != NULL]
    if facts.step_source == "inferred" and len(calls) and marks[-1] <= ops["end_ns"].max():
        marks[-1] = min(marks[-1], max(calls.max(), facts.host_spans["end_ns"].max(initial=0)))
    return marks


def _lags(ops: Operations, dep: Array) -> tuple[Array, Array, Array]:
    """Lags (ns) that a start keeps behind its launch, the operation before it on the stream, and its dependency.

    The constraint that bound in the recording gets the lag that reproduces the start exactly, the others a typical one.
    What an operation idled behind the one before it is a lag of the queue only where the launch is known to have come
    earlier: else anything may have held it.
    """
    start, launch, previous = ops.start_ns, ops.launch_ns, previous_end(ops)
    end = start + ops.dur_ns
    waited = np.where(dep >= 0, end[dep], NEVER)
    launched_last = (launch > previous) & (launch > waited) & (launch != NEVER)
    launch_lag = _typical(start - launch, launched_last, DEFAULT_LAUNCH_LAG_NS)
    queued = (launch != NEVER) & (previous > launch + launch_lag) & (previous > waited)
    queue_lag = _typical(start - previous, queued, DEFAULT_QUEUE_LAG_NS)
    candidates = np.stack((launch + launch_lag, previous + queue_lag, waited + queue_lag))
    binding = np.argmax(candidates, axis=0)
    lags = []
    for index, since in enumerate((launch, previous, waited)):
        default = launch_lag if index == 0 else queue_lag
        exact = start - since
        lags.append(np.where(since == NEVER, 0, np.where(binding == index, exact, np.minimum(default, exact))))
    return lags[0], lags[1], lags[2]


def _typical(lag: Array, where: Array, default: int) -> int:
    values = lag[where & (lag >= 0)]
    return int(np.median(values)) if len(values) >= 8 else default


def _shortest(job: JobFacts) -> Array:
    """Duration of the member of each instance that arrived last; ns, shape (instances,)."""
    shortest = np.full(len(job.instances), NO_LIMIT)
    np.minimum.at(shortest, job.members["instance"], job.members["end_ns"] - job.members["start_ns"])
    return shortest


def _transfers(job: JobFacts, position: int, ops: Operations, anchors: Anchors, shortest_ns: Array) -> Array:
    """Time from the last arrival to the end, per operation; its whole duration where it has no partner.

    Where all waited for a rank that was not recorded, it runs from the last arrival of those that were.
    """
    members = job.members
    rows = members_of(members, position)
    ready = np.full(len(job.ranks[position].comms), NULL)
    instance = members["instance"][rows]
    unseen = (job.instances["late"][instance] == NULL) & (job.instances["members"][instance] > 1)
    since = np.where(unseen, members["end_ns"][rows] - shortest_ns[instance], members["ready_ns"][rows])
    np.maximum.at(ready, members["comm"][rows], since)
    transfer = ops.dur_ns.copy()
    at = ops.comm >= 0
    is_matched = at & (np.where(at, ready[ops.comm], NULL) != NULL) if len(ready) else np.zeros(len(at), bool)
    transfer[is_matched] = ops.end_ns[is_matched] - ready[ops.comm[is_matched]]
    if not is_matched.any():
        return transfer
    limit = _message_transfer(job, position)[ops.comm]
    if rank_execution(job.ranks[position]).messages_last_until_waited_for:
        blocked = _blocked(ops, anchors)
        limit = np.where((limit < NO_LIMIT) & (blocked > 0), blocked, limit)
    return np.minimum(transfer, limit)


def _blocked(ops: Operations, anchors: Anchors) -> Array:
    """Host time spent blocked on each operation before it ended; 0 where the host did not block."""
    end = ops.end_ns
    if not len(anchors.start_ns):
        return np.zeros(len(end), np.int64)
    at = np.maximum(np.searchsorted(anchors.start_ns, end) - 1, 0)
    inside = (anchors.start_ns[at] < end) & (end <= anchors.end_ns[at])
    return np.where(inside, end - anchors.start_ns[at], 0)


def _message_transfer(job: JobFacts, position: int) -> Array:
    """Least transfer of the one message a comm carries, over both sides; no limit for all other comms.

    A send batched with a receive is recorded with the batch's duration; the other side shows its own transfer.
    """
    limit = np.full(len(job.ranks[position].comms) + 1, NO_LIMIT)
    rows = members_of(job.members, position)
    instance, comm = job.members["instance"][rows], job.members["comm"][rows]
    message = job.instances["is_message"][instance].astype(bool) & (job.instances["members"][instance] > 1)
    single = message & (np.bincount(comm, minlength=len(limit))[comm] == 1)
    limit[comm[single]] = job.instances["transfer_ns"][instance[single]]
    return limit


def _chains(ops: Operations, section: Array, dep: Array, anchors: Anchors) -> tuple[Array, Array, Array]:
    """Chain number of each operation and the first and last operation of each chain."""
    count = len(ops.start_ns)
    is_source = np.zeros(count, bool)
    is_source[dep[dep >= 0]] = True
    is_source[anchors.target[anchors.target >= 0]] = True
    begins = np.ones(count, bool)
    begins[1:] = (
        (ops.track[1:] != ops.track[:-1])
        | (section[1:] != section[:-1])
        | (dep[1:] >= 0)
        | ops.is_comm[1:]
        | ops.is_comm[:-1]
        | is_source[:-1]
    )
    node = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    last = np.append(first, count)[1:] - 1
    return node, first, last


def _links(job: JobFacts, position: int, ops: Ops, nodes: int) -> list[Met]:
    """Instances each node takes part in; instances with one member seen are no rendezvous."""
    members = job.members
    rows = members_of(members, position)
    rows = rows[job.instances["members"][members["instance"][rows]] > 1]
    node_of = np.full(len(job.ranks[position].comms) + 1, -1)  # the last for no communication
    node_of[ops.comm[ops.is_comm]] = ops.node[ops.is_comm]
    links: list[Met] = [()] * nodes
    for node, instance in zip(node_of[members["comm"][rows]].tolist(), members["instance"][rows].tolist(), strict=True):
        if node >= 0 and instance not in links[node]:
            links[node] = (*links[node], instance)
    return links


def _order(ops: Ops, anchors: Anchors, first: Array, last: Array) -> Order:
    """Nodes by the time they were done: an order in which every dependency precedes its dependants."""
    end = ops.end_ns
    # A call may be stamped as returned just before what it waited for ended.
    seen = anchors.target >= 0
    np.minimum.at(end, anchors.target[seen], anchors.end_ns[seen])
    is_comm, dep, nodes = ops.is_comm[first], ops.dep[first], np.arange(len(first))
    after_dep = np.where(dep >= 0, end[dep] + 1, NEVER)
    chain_time = np.maximum(end[last], after_dep)
    start_time = np.maximum(ops.start_ns[first], after_dep)
    finish_time = np.maximum(chain_time, start_time)
    returned = np.maximum.accumulate(anchors.end_ns)
    waits = np.where(anchors.kind == Anchor.LOADER, Node.BATCH, Node.ANCHOR)
    parts = (
        (np.full(len(nodes) - int(is_comm.sum()), Node.CHAIN), nodes[~is_comm], chain_time[~is_comm]),
        (np.full(int(is_comm.sum()), Node.POST), nodes[is_comm], start_time[is_comm]),
        (np.full(int(is_comm.sum()), Node.FINISH), nodes[is_comm], finish_time[is_comm]),
        (waits, np.arange(len(returned)), returned),
    )
    kind, index, time = (np.concatenate(column) for column in zip(*parts, strict=True))
    turn = _turns_at_once(ops.track[first], is_comm, start_time, finish_time)
    meets = (kind == Node.POST) | (kind == Node.FINISH)
    at_once = np.zeros(len(kind), np.int64)
    at_once[meets] = np.where(time[meets] == start_time[index[meets]], turn[index[meets]], 0)
    order = np.lexsort((index, np.minimum(kind, Node.ANCHOR), at_once, time))
    return Order(kind[order], index[order])


def _turns_at_once(track: Array, is_comm: Array, start_ns: Array, end_ns: Array) -> Array:
    """Number of communications of its stream that end when each node starts, one after another: it comes after them,
    though all have one time. Timelines whose operations begin where the one before ended are full of such.
    """
    follows = np.zeros(len(track), bool)
    follows[1:] = is_comm[1:] & is_comm[:-1] & (track[1:] == track[:-1]) & (start_ns[1:] == end_ns[:-1])
    instant = np.append(False, (end_ns == start_ns)[:-1])  # the one before took no time
    turn = np.zeros(len(track), np.int64)
    while True:
        after = np.where(follows, 1 + np.where(instant, np.append(0, turn[:-1]), 0), 0)
        if (after == turn).all():
            return turn
        turn = after
