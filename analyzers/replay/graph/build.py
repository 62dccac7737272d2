"""From JobFacts to the Graph that is replayed: the dependencies of every rank, contracted.

Method: Lumos (MLSys'25) for edges between streams; a communication starts when its last member has arrived (OSDI'25).
"""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.model import RankFacts, Work
from ddprof.analyzers.facts.work import issued_ns
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.replay.graph.anchors import find_anchors
from ddprof.analyzers.replay.graph.dependencies import find_dependencies, previous_end
from ddprof.analyzers.replay.model import NEVER, Anchors, Graph, Ops, RankGraph
from ddprof.tables import NULL, Array

CHAIN, POST, FINISH, ANCHOR, MARK = range(5)  # kinds of node: POST and FINISH are the two ends of a communication
DEFAULT_LAUNCH_LAG_NS = 6_000  # from a launch to the start on an idle stream, where too few operations show it
DEFAULT_QUEUE_LAG_NS = 1_000  # from one operation's end to the next one's start, where too few operations show it
NO_LIMIT = np.iinfo(np.int64).max


def build_graph(job: JobFacts) -> Graph:
    """The reduced graph of the whole job. Ranks without steps are left out of the rendezvous."""
    arrived = _last_arrivals(job)
    ranks = tuple(_rank_graph(job, p, arrived) for p, facts in enumerate(job.ranks) if len(facts.steps))
    members = np.zeros(len(job.instances), np.int64)
    for rank in ranks:
        for instances in rank.links.values():
            members[list(instances)] += 1
    spans = [measured_span_ns(rank) for rank in ranks]
    facts = [rank.facts for rank in ranks]
    return Graph(ranks, members, float(np.mean(spans)) if spans else 0.0, execution_of(job).interference(facts))


def _beside(facts: RankFacts, base: dict[str, Array]) -> Array:
    """Share of each operation that ran beside communication; 0 for communication itself."""
    comm = intervals.union(*facts.comms.bounds)
    share = intervals.overlap(comm, base["start"], base["start"] + base["dur"]) / np.maximum(base["dur"], 1)
    return np.where(base["is_comm"], 0.0, share)


def measured_span_ns(rank: RankGraph) -> int:
    """From the first step mark to the later of the last mark and the last device operation launched before it."""
    last = int(rank.marks_ns[-1]) if rank.has_host else rank.origin_ns
    ends = (rank.ops.start_ns + rank.ops.dur_ns)[rank.ops.launch_ns < int(rank.marks_ns[-1])]
    return max([last, *([int(ends.max())] if len(ends) else [])]) - rank.origin_ns


def _last_arrivals(job: JobFacts) -> Array:
    """Per member of an instance, when the last member had arrived at the latest: own clock, its error included."""
    members, positions = job.members, range(len(job.ranks))
    offset = np.array([job.clock.offset_ns(p) for p in positions], np.int64)[members["rank"]]
    errors = [job.clock.domains[job.clock.domain_of[p]].error_ns for p in positions]
    error = np.array([NO_LIMIT // 2 if e is None else e for e in errors], np.int64)[members["rank"]]
    arrival = np.full(len(job.instances), NEVER)
    np.maximum.at(arrival, members["instance"], members["start_ns"] - offset)
    latest: Array = arrival[members["instance"]] + offset + error
    return latest


def _rank_graph(job: JobFacts, position: int, arrived_ns: Array) -> RankGraph:
    facts = job.ranks[position]
    origin = int(facts.steps["start_ns"][0])
    base = _device_base(facts, origin) if facts.is_device_rank else _host_base(facts, origin)
    mine = job.members["rank"] == position
    arrived = np.full(len(facts.comms), NEVER)
    np.maximum.at(arrived, job.members["comm"][mine], arrived_ns[mine])
    anchors = find_anchors(facts, base, origin, arrived)
    begins = np.concatenate(([origin], anchors.end_ns))
    segment = np.maximum(np.searchsorted(begins, base["launch"], side="right") - 1, 0)
    dep = find_dependencies(facts, base)
    lags = _lags(base, dep)
    transfer = _transfers(job, position, base, anchors)
    node, first, last = _chains(base, segment, dep, anchors)
    ops = Ops(
        base["row"],
        base["start"],
        base["dur"],
        base["track"],
        base["launch"],
        base["is_comm"],
        base["comm"],
        dep,
        *lags,
        transfer,
        segment,
        node,
    )
    links = _links(job, position, ops)
    marks = facts.steps["end_ns"]
    order = _order(ops, anchors, marks, first, last)
    has_host = not facts.is_device_rank or bool((facts.device_ops["launch_ns"] != NULL).any())
    offset = job.clock.offset_ns(position)
    return RankGraph(
        facts, position, origin, offset, ops, anchors, marks, first, last, links, order, _beside(facts, base), has_host
    )


def _device_base(facts: RankFacts, origin: int) -> dict[str, Array]:
    """Operations by track, then start: those that start after the first mark and are launched before the last."""
    ops = facts.device_ops
    launch = np.where(ops["launch_ns"] == NULL, NEVER, ops["launch_ns"])
    rows = np.flatnonzero((ops["start_ns"] >= origin) & (launch < facts.steps["end_ns"][-1]))
    rows = rows[np.lexsort((ops["start_ns"][rows], ops["track"][rows]))]
    track = ops["track"][rows].astype(np.int64)
    launch = launch[rows]
    # The first operation of a stream needs something to follow: without a known launch, the first step mark.
    first = np.ones(len(rows), bool)
    first[1:] = track[1:] != track[:-1]
    launch[first & (launch == NEVER)] = origin
    return {
        "row": rows,
        "start": ops["start_ns"][rows],
        "dur": (ops["end_ns"] - ops["start_ns"])[rows],
        "track": track,
        "launch": launch,
        "is_comm": ops["work"][rows] == Work.COMM,
        "is_copy": ops["work"][rows] == Work.COPY,
        "comm": np.where(ops["comm"][rows] == NULL, -1, ops["comm"][rows]),
    }


def _host_base(facts: RankFacts, origin: int) -> dict[str, Array]:
    """A CPU rank has no device queue: its streams are the backend's threads, and only communication runs on them."""
    comms = facts.comms
    rows = np.flatnonzero((comms["start_ns"] >= origin) & (comms["start_ns"] < facts.steps["end_ns"][-1]))
    rows = rows[np.lexsort((comms["start_ns"][rows], comms["track"][rows]))]
    return {
        "row": rows,
        "start": comms["start_ns"][rows],
        "dur": (comms["end_ns"] - comms["start_ns"])[rows],
        "track": comms["track"][rows].astype(np.int64),
        "launch": issued_ns(comms)[rows],
        "is_comm": np.ones(len(rows), bool),
        "is_copy": np.zeros(len(rows), bool),
        "comm": rows,
    }


def _lags(base: dict[str, Array], dep: Array) -> tuple[Array, Array, Array]:
    """Lags (ns) that a start keeps behind its launch, the operation before it on the stream, and its dependency.

    The constraint that bound in the recording gets the lag that reproduces the start exactly, the others a typical one.
    """
    start, launch, previous = base["start"], base["launch"], previous_end(base)
    end = start + base["dur"]
    waited = np.where(dep >= 0, end[dep], NEVER)
    launch_lag = _typical(
        start - launch, (launch > previous) & (launch > waited) & (launch != NEVER), DEFAULT_LAUNCH_LAG_NS
    )
    queue_lag = _typical(start - previous, (previous > launch + launch_lag) & (previous > waited), DEFAULT_QUEUE_LAG_NS)
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


def _transfers(job: JobFacts, position: int, base: dict[str, Array], anchors: Anchors) -> Array:
    """From the last arrival to the end, per operation; its whole duration where it has no partner."""
    members = job.members
    mine = np.flatnonzero(members["rank"] == position)
    ready = np.full(len(job.ranks[position].comms), NULL)
    np.maximum.at(ready, members["comm"][mine], members["ready_ns"][mine])
    transfer = base["dur"].copy()
    at = base["comm"] >= 0
    known = at & (np.where(at, ready[base["comm"]], NULL) != NULL) if len(ready) else np.zeros(len(at), bool)
    transfer[known] = (base["start"] + base["dur"])[known] - ready[base["comm"][known]]
    if not known.any():
        return transfer
    limit = _message_transfer(job, position)[base["comm"]]
    if not job.ranks[position].is_device_rank:
        blocked = _blocked(base, anchors)
        limit = np.where((limit < NO_LIMIT) & (blocked > 0), blocked, limit)
    return np.minimum(transfer, limit)


def _blocked(base: dict[str, Array], anchors: Anchors) -> Array:
    """How long the host had been blocked when each operation ended; 0 where it was not."""
    end = base["start"] + base["dur"]
    if not len(anchors.start_ns):
        return np.zeros(len(end), np.int64)
    at = np.maximum(np.searchsorted(anchors.start_ns, end) - 1, 0)
    inside = (anchors.start_ns[at] < end) & (end <= anchors.end_ns[at])
    return np.where(inside, end - anchors.start_ns[at], 0)


def _message_transfer(job: JobFacts, position: int) -> Array:
    """Least transfer of the one message a comm carries, over both sides; no limit for all other comms.

    A send that was batched with a receive is recorded as long as the batch: its own transfer is what the other side
    shows.
    """
    limit = np.full(len(job.ranks[position].comms) + 1, NO_LIMIT)
    mine = np.flatnonzero(job.members["rank"] == position)
    instance, comm = job.members["instance"][mine], job.members["comm"][mine]
    message = job.instances["is_message"][instance].astype(bool) & (job.instances["members"][instance] > 1)
    single = message & (np.bincount(comm, minlength=len(limit))[comm] == 1)
    limit[comm[single]] = job.instances["transfer_ns"][instance[single]]
    return limit


def _chains(base: dict[str, Array], segment: Array, dep: Array, anchors: Anchors) -> tuple[Array, Array, Array]:
    """Chain number of each operation and the first and last operation of each chain."""
    count = len(base["start"])
    if not count:
        none = np.empty(0, np.int64)
        return none, none, none
    is_source = np.zeros(count, bool)
    is_source[dep[dep >= 0]] = True
    is_source[anchors.target[anchors.target >= 0]] = True
    begins = np.ones(count, bool)
    begins[1:] = (
        (base["track"][1:] != base["track"][:-1])
        | (segment[1:] != segment[:-1])
        | (dep[1:] >= 0)
        | base["is_comm"][1:]
        | base["is_comm"][:-1]
        | is_source[:-1]
    )
    node = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    last = np.append(first[1:], count) - 1
    return node, first, last


def _links(job: JobFacts, position: int, ops: Ops) -> dict[int, tuple[int, ...]]:
    """Instances each communication node takes part in; instances with one member seen are no rendezvous."""
    members = job.members
    mine = np.flatnonzero((members["rank"] == position) & (job.instances["members"][members["instance"]] > 1))
    node_of = dict(zip(ops.comm[ops.is_comm].tolist(), ops.node[ops.is_comm].tolist(), strict=True))
    links: dict[int, list[int]] = {}
    for comm, instance in zip(members["comm"][mine].tolist(), members["instance"][mine].tolist(), strict=True):
        if comm in node_of:
            links.setdefault(node_of[comm], []).append(instance)
    return {node: tuple(dict.fromkeys(instances)) for node, instances in links.items()}


def _order(ops: Ops, anchors: Anchors, marks: Array, first: Array, last: Array) -> tuple[tuple[int, int], ...]:
    """Nodes by the time they were done: an order in which every dependency precedes its dependants."""
    end = ops.start_ns + ops.dur_ns
    # A call may be stamped as returned just before what it waited for ended.
    seen = anchors.target >= 0
    np.minimum.at(end, anchors.target[seen], anchors.end_ns[seen])
    is_comm = ops.is_comm[first] if len(first) else np.empty(0, bool)
    nodes = np.arange(len(first))
    dep = ops.dep[first] if len(first) else np.empty(0, np.int64)
    after_dep = np.where(dep >= 0, end[dep] + 1, NEVER) if len(first) else np.empty(0, np.int64)
    chain_time = np.maximum(end[last], after_dep) if len(first) else np.empty(0, np.int64)
    start_time = np.maximum(ops.start_ns[first], after_dep) if len(first) else np.empty(0, np.int64)
    finish_time = np.maximum(chain_time, start_time)
    kinds = [(CHAIN, nodes[~is_comm], chain_time[~is_comm], 1), (POST, nodes[is_comm], start_time[is_comm], 2)]
    kinds += [(FINISH, nodes[is_comm], finish_time[is_comm], 3)]
    returned = np.maximum.accumulate(anchors.end_ns) if len(anchors.end_ns) else anchors.end_ns
    kinds += [(ANCHOR, np.arange(len(returned)), returned, 4), (MARK, np.arange(len(marks)), marks, 5)]
    kind = np.concatenate([np.full(len(i), k) for k, i, _, _ in kinds])
    index = np.concatenate([i for _, i, _, _ in kinds])
    time = np.concatenate([t for _, _, t, _ in kinds])
    rank = np.concatenate([np.full(len(i), r) for _, i, _, r in kinds])
    order = np.lexsort((index, rank, time))
    return tuple(zip(kind[order].tolist(), index[order].tolist(), strict=True))
