"""The critical path: the one chain of dependent work, over all ranks, that is as long as the run.

Walked backwards through the replay's graph as it was recorded: an operation was bound by its launch, by the operation
before it on its stream or by one on another stream; a communication by the last of its members; a host that blocked by
what it waited for. Pieces follow one another without gap or overlap, so their lengths sum to the span of the run.
Removing work off the path does not shorten the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ddprof import intervals
from ddprof.analyzers.execution.operations import NEVER
from ddprof.analyzers.facts.work import host_work
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.waiting.waits import members_of
from ddprof.analyzers.replay.model import Anchor, Graph, RankGraph
from ddprof.causes import CAUSE_CODE, HOST_OCCUPANTS
from ddprof.tables import NULL, Column, Schema, Table, concat

CRITICAL = Schema(
    "critical",
    Column("rank", "int64", "position in JobFacts.ranks"),
    Column("start_ns", "int64", "reference clock"),
    Column("end_ns", "int64", "reference clock; the next piece of the path starts here"),
    Column("cause", "uint8", "what the time is, code of a cause (ddprof.causes); never a wait"),
    Column("track", "int64", "stream, as a row of the rank's tracks; missing: the host", nullable=True),
)

# A host that ends this much later than its device, of the run, merely came to its mark: the device held the run.
TAIL_SHARE = 0.02


def critical_path(job: JobFacts, graph: Graph) -> Table:
    """CRITICAL in time order; empty where nothing could be replayed."""
    if not graph.ranks:
        return CRITICAL.empty()
    walk = _Walk(job, graph)
    walk.run()
    rank, start, end, cause, track = (np.array(column, np.int64) for column in zip(*walk.pieces[::-1], strict=True))
    path = CRITICAL.table({"rank": rank, "start_ns": start, "end_ns": end, "cause": cause, "track": track})
    return _explain_host(path, graph)


@dataclass
class _Walk:
    """State of the backward walk: `at_ns` on the reference clock decreases; each decrease is a piece of the path."""

    job: JobFacts
    graph: Graph
    at_ns: int = 0
    pieces: list[tuple[int, int, int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lanes = {rank.position: _Lane(rank, self.job) for rank in self.graph.ranks}

    def run(self) -> None:
        """Walk from the latest end of the run back to a first step mark."""
        lane, op = max(((lane, *lane.last()) for lane in self.lanes.values()), key=lambda item: item[2])[:2]
        self.at_ns = lane.last()[1]
        state: tuple[_Lane, int, bool] | None
        if op >= 0:
            self._emit(lane, lane.end[op], CAUSE_CODE["host_launch"], NULL)
        state = (lane, op, True) if op >= 0 else self._host(lane, len(lane.begins) - 1)
        left = sum(len(other.start) + len(other.begins) for other in self.lanes.values()) + 10
        while state is not None and left > 0:
            state = self._operation(*state)
            left -= 1
        if not self.pieces:
            self._emit(lane, lane.origin, CAUSE_CODE["host_launch"], NULL)

    def _emit(self, lane: _Lane, down_to_ns: int, cause: int, track: int) -> None:
        """Book the time from `down_to_ns` (reference clock) to the walk's position on this piece."""
        if down_to_ns < self.at_ns:
            self.pieces.append((lane.position, down_to_ns, self.at_ns, cause, track))
            self.at_ns = down_to_ns

    def _operation(self, lane: _Lane, op: int, is_end: bool) -> tuple[_Lane, int, bool] | None:
        """Go from the end (or only the start) of an operation to what bound its start."""
        if is_end:
            late = lane.waited_for(op, self.lanes)
            if late is not None:
                other, theirs, ready = late
                self._emit(lane, ready, CAUSE_CODE["comm_transfer"], lane.track[op])
                return other, theirs, False
            self._emit(lane, lane.start[op], lane.cause[op], lane.track[op])
        bound = lane.bound(op)
        if bound >= 0:
            self._emit(lane, min(self.at_ns, lane.end[bound]), lane.cause[op], lane.track[op])
            return lane, bound, True
        if lane.launch[op] == NEVER:
            self._emit(lane, lane.origin, CAUSE_CODE["unknown"], NULL)
            return None
        self._emit(lane, lane.launch[op], CAUSE_CODE["host_launch"], NULL)
        return self._host(lane, lane.section[op])

    def _host(self, lane: _Lane, section: int) -> tuple[_Lane, int, bool] | None:
        """Go down the host's time, past calls that did not block, to the operation that a blocking call waited for."""
        while section > 0:
            self._emit(lane, lane.begins[section], CAUSE_CODE["host_launch"], NULL)
            call, target = lane.calls[section - 1], lane.targets[section - 1]
            if target >= 0 and lane.end[target] > call:
                self._emit(lane, min(self.at_ns, lane.end[target]), CAUSE_CODE["host_sync"], NULL)
                return lane, target, True
            waited = CAUSE_CODE["dataloader"] if lane.kinds[section - 1] == Anchor.LOADER else CAUSE_CODE["host_launch"]
            self._emit(lane, call, waited, NULL)
            section -= 1
        self._emit(lane, lane.origin, CAUSE_CODE["host_launch"], NULL)
        return None


class _Lane:
    """One rank's graph as plain lists on the reference clock, as the walk reads one operation at a time."""

    def __init__(self, rank: RankGraph, job: JobFacts) -> None:
        ops, shift = rank.ops, rank.offset_ns
        self.position, self.origin = rank.position, rank.origin_ns - shift
        self.start, self.end = (ops.start_ns - shift).tolist(), (ops.end_ns - shift).tolist()
        self.launch = np.where(ops.launch_ns == NEVER, NEVER, ops.launch_ns - shift).tolist()
        self.track, self.section, self.dep = ops.track.tolist(), ops.section.tolist(), ops.dep.tolist()
        same = np.zeros(len(ops.track), bool)
        same[1:] = ops.track[1:] == ops.track[:-1]
        self.previous = np.where(same, np.arange(len(same)) - 1, -1).tolist()
        self.lags = list(zip(*(a.tolist() for a in (ops.launch_lag_ns, ops.queue_lag_ns, ops.dep_lag_ns)), strict=True))
        of_comm = np.where(ops.is_comm, CAUSE_CODE["comm_transfer"], CAUSE_CODE["compute"])
        self.cause = np.where(ops.is_copy, CAUSE_CODE["memcpy"], of_comm).tolist()
        self.begins = [self.origin, *(rank.anchors.end_ns - shift).tolist()]
        self.calls = (rank.anchors.start_ns - shift).tolist()
        self.targets, self.kinds = rank.anchors.target.tolist(), rank.anchors.kind.tolist()
        self.last_mark = int(rank.marks_ns[-1]) - shift
        self.has_host = rank.has_host
        self._comms(rank, job, shift)

    def _comms(self, rank: RankGraph, job: JobFacts, shift: int) -> None:
        """Set the instance that each operation completed last with, its ready time, and the way from comm to op."""
        members = job.members
        rows = members_of(members, rank.position)
        rows = rows[np.argsort(members["ready_ns"][rows], kind="stable")]
        count = len(rank.facts.comms)
        instance, ready = np.full(count + 1, -1, np.int64), np.zeros(count + 1, np.int64)
        instance[members["comm"][rows]] = members["instance"][rows]
        ready[members["comm"][rows]] = members["ready_ns"][rows] - shift
        late = job.instances["late"]
        comm = rank.ops.comm
        self.ready = ready[comm].tolist()
        self.late = [int(late[i]) if i >= 0 and late[i] != NULL else -1 for i in instance[comm].tolist()]
        self.instance = instance[comm].tolist()
        self.op_of = dict(zip(self.instance, range(len(comm)), strict=True))

    def last(self) -> tuple[int, int]:
        """The rank's last operation (-1: the host ends the run) and its end, reference clock."""
        ops = [i for i, launched in enumerate(self.launch) if launched < self.last_mark]
        op = max(ops, key=lambda i: self.end[i], default=-1)
        tail_ns = self.last_mark - self.end[op] if op >= 0 and self.has_host else 0
        if op < 0 or tail_ns > TAIL_SHARE * (self.last_mark - self.origin):
            return -1, self.last_mark
        return op, self.end[op] + max(0, tail_ns)

    def waited_for(self, op: int, lanes: dict[int, _Lane]) -> tuple[_Lane, int, int] | None:
        """The rank that came last to this communication, its operation, and its arrival; None where nobody waited."""
        late = self.late[op]
        if late < 0 or late == self.position or self.ready[op] <= self.start[op] or late not in lanes:
            return None
        theirs = lanes[late].op_of.get(self.instance[op])
        return None if theirs is None else (lanes[late], theirs, self.ready[op])

    def bound(self, op: int) -> int:
        """The operation whose end bound this one's start; -1 where the launch did."""
        launch_lag, queue_lag, dep_lag = self.lags[op]
        best, at = -1, self.launch[op] + launch_lag if self.launch[op] != NEVER else NEVER
        for other, lag in ((self.previous[op], queue_lag), (self.dep[op], dep_lag)):
            if other >= 0 and self.end[other] + lag > at:
                best, at = other, self.end[other] + lag
        return best


def _explain_host(path: Table, graph: Graph) -> Table:
    """Host time on the path by host activity: loading, collecting, and on CPU ranks computing."""
    is_host = path["cause"] == CAUSE_CODE["host_launch"]
    tables = [path.take(np.flatnonzero(~is_host))]
    for rank in graph.ranks:
        rows = np.flatnonzero(is_host & (path["rank"] == rank.position))
        left = (path["start_ns"][rows] + rank.offset_ns, path["end_ns"][rows] + rank.offset_ns)
        order = np.argsort(left[0], kind="stable")
        left = (left[0][order], left[1][order])
        spans = [(cause, intervals.union(*rank.facts.spans_of(cause).bounds)) for cause in HOST_OCCUPANTS]
        for cause, occupied in (*spans, ("compute", host_work(rank.facts)), ("host_launch", left)):
            tables.append(_pieces(rank, cause, intervals.intersect(left, occupied)))
            left = intervals.subtract(left, occupied)
    whole = concat(CRITICAL, tables)
    return whole.take(np.argsort(whole["start_ns"], kind="stable"))


def _pieces(rank: RankGraph, cause: str, spans: intervals.Intervals) -> Table:
    start, end = spans
    fixed = {"rank": rank.position, "cause": CAUSE_CODE[cause], "track": NULL}
    columns = {name: np.full(len(start), value) for name, value in fixed.items()}
    return CRITICAL.table({**columns, "start_ns": start - rank.offset_ns, "end_ns": end - rank.offset_ns})
