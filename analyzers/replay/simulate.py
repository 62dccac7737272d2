"""Replay: evaluate the graph under a scenario. Ranks advance one at a time and meet at communications.

Cost: contraction is a few numpy passes per rank and scenario; the simulation itself is one Python step per node, and
nodes are only what can move.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.execution.operations import NEVER
from ddprof.analyzers.replay.graph.build import ANCHOR, CHAIN, FINISH, MARK, POST
from ddprof.analyzers.replay.host_time import HostTimeline
from ddprof.analyzers.replay.model import Anchor, Graph, RankGraph, Scenario

MAX_LEAD = 0.25  # of the span: with less in common the window is too short to cut
_DEVICE = (CHAIN, POST)  # nodes that begin on a stream


@dataclass(frozen=True)
class Outcome:
    """A replayed run, per rank: its span (ns), the host time of each step mark (reference clock), and whether it counts
    (a rank that nobody waits for does not).
    """

    spans_ns: tuple[int, ...]
    counted: tuple[bool, ...]
    marks_ns: tuple[tuple[int, ...], ...]
    comm_busy_ns: tuple[int, ...]  # per rank, time in communication, waiting included
    lead_ns: tuple[int, ...]  # per rank, how much earlier its window begins than the last rank's
    sections_ns: tuple[Sequence[int], ...]  # per rank, when each section of its host began (reference clock)
    ends_ns: tuple[Sequence[int], ...]  # per rank, when each of its nodes ended

    @property
    def span_ns(self) -> float:
        """Mean span over the ranks that count; 0 without ranks."""
        return self._mean(self.spans_ns)

    def relative_to(self, baseline: Outcome) -> float:
        """Span over that of the same ranks in the baseline: spans of ranks differ where the window is short.

        Counted from when the last rank's window begins: what the others wait for before that lies outside it, and no
        change inside can shorten it.
        """
        common = (
            self.lead_ns if max(self.lead_ns, default=0) < MAX_LEAD * baseline.span_ns else (0,) * len(self.lead_ns)
        )
        after, before = (
            self._mean(tuple(s - c for s, c in zip(o.spans_ns, common, strict=True))) for o in (self, baseline)
        )
        return after / before if before > 0 else 1.0

    def _mean(self, spans_ns: tuple[int, ...]) -> float:
        chosen = [span for span, counts in zip(spans_ns, self.counted, strict=True) if counts]
        return float(np.mean(chosen)) if chosen else 0.0


def simulate(graph: Graph, scenario: Scenario | None = None) -> Outcome:
    """Run the whole job under a scenario (None: as recorded)."""
    scenario = scenario or Scenario()
    runs = [_Run(rank, scenario) for rank in graph.ranks]
    arrived = [0] * len(graph.members)
    latest = [NEVER] * len(graph.members)
    needed = graph.members.tolist()
    waiting: dict[int, list[int]] = {}
    ready = deque(range(len(runs)))
    blocked: set[int] = set()
    while True:
        while ready:
            index = ready.popleft()
            blocked.discard(index)
            stuck = runs[index].advance(arrived, latest, needed, waiting, ready)
            if stuck is not None:
                waiting.setdefault(stuck, []).append(index)
                blocked.add(index)
        if not blocked:
            break
        _break_deadlock(waiting, needed, arrived, ready)
    last_begin = max((run.begin for run in runs), default=0)
    counted = tuple(run.rank.position not in scenario.on_time for run in runs)
    return Outcome(
        tuple(run.span() for run in runs),
        counted if any(counted) else (True,) * len(runs),
        tuple(tuple(run.marks) for run in runs),
        tuple(run.comm_busy for run in runs),
        tuple(last_begin - run.begin for run in runs),
        tuple(run.host for run in runs),
        tuple(run.ends for run in runs),
    )


def _break_deadlock(waiting: dict[int, list[int]], needed: list[int], arrived: list[int], ready: deque[int]) -> None:
    """Members that never arrive (a truncated window) must not hold the others for ever: the smallest instance goes."""
    instance = min(i for i, who in waiting.items() if who)
    needed[instance] = arrived[instance]
    ready.extend(waiting.pop(instance))


class _Run:
    """One rank's state while it is replayed."""

    def __init__(self, rank: RankGraph, scenario: Scenario) -> None:
        self.rank = rank
        self.at = 0
        self.marks: list[int] = []
        self.comm_busy = 0
        self.origin = rank.origin_ns - rank.offset_ns
        self.host = [NEVER] * (len(rank.anchors.kind) + 1)
        self.host[0] = self.origin
        self.begin = rank.begin_ns - rank.offset_ns
        # Until the first step begins the device is at work that the host had launched before.
        self.stream_end = [self.begin] * (int(rank.ops.track.max()) + 1 if len(rank.ops.track) else 0)
        self.ends = [NEVER] * len(rank.node_first)
        self.starts = [NEVER] * len(rank.node_first)
        self._contract(scenario)

    def _contract(self, scenario: Scenario) -> None:
        rank, ops, p = self.rank, self.rank.ops, self.rank.position
        dur = scenario.dur_ns.get(p, ops.dur_ns)
        queue = scenario.queue_ns.get(p, ops.queue_lag_ns)
        transfer = scenario.transfer_ns.get(p, ops.transfer_ns)
        clock = HostTimeline(rank, scenario)
        offset = np.where(ops.launch_ns == NEVER, NEVER, clock.offset(ops.launch_ns, ops.section) + ops.launch_lag_ns)
        first, last = rank.node_first, rank.node_last
        if len(first):
            work = dur + queue
            total = np.add.reduceat(work, first) - queue[first]
            # Time from an operation's start to the end of its chain: durations and lags that follow.
            tail = np.cumsum(work[::-1])[::-1]
            beyond = np.append(tail[1:], 0)[last]
            to_end = tail - queue - beyond[ops.node]
            launch_bound = np.maximum.reduceat(np.where(offset == NEVER, NEVER, offset + to_end), first)
        else:
            total = launch_bound = np.empty(0, np.int64)
        dep = np.where(ops.dep[first] >= 0, ops.node[ops.dep[first]], -1) if len(first) else first
        of_node = (
            *(ops.track[first], queue[first], dep, ops.dep_lag_ns[first], ops.section[first]),
            *(offset[first], total, launch_bound),
        )
        self.node = list(zip(*(column.tolist() for column in of_node), strict=True))
        self.transfer = transfer[first].tolist()
        self.mark_at = list(zip(*clock.locate(rank.marks_ns), strict=True))
        self._anchors(scenario, clock)

    def _anchors(self, scenario: Scenario, clock: HostTimeline) -> None:
        rank, anchors = self.rank, self.rank.anchors
        p = rank.position
        call = clock.offset(anchors.start_ns, np.arange(len(anchors.start_ns)))
        self.call = call.tolist()
        self.kind = anchors.kind.tolist()
        self.tail = anchors.tail_ns.tolist()
        self.ready_at = (anchors.end_ns - rank.offset_ns).tolist()
        self.target = (
            np.where(anchors.target >= 0, rank.ops.node[anchors.target], -1).tolist()
            if len(rank.ops.node)
            else [-1] * len(call)
        )
        self.on_time = p in scenario.on_time
        self.freed = scenario.freed.get(p, frozenset())

    def span(self) -> int:
        """From the first step's start to the later of the last mark and the last device operation."""
        marks = self.marks[-1:] if self.rank.has_host else []
        return max([NEVER, *marks, *self.stream_end]) - self.begin

    def advance(
        self, arrived: list[int], latest: list[int], needed: list[int], waiting: dict[int, list[int]], ready: deque[int]
    ) -> int | None:
        """Evaluate nodes until one must wait for another rank: its instance, or None at the end."""
        order, links, nodes = self.rank.order, self.rank.links, self.node
        host, ends, starts, stream_end = self.host, self.ends, self.starts, self.stream_end
        for at in range(self.at, len(order)):
            kind, index = order[at]
            if kind in _DEVICE:
                track, queue_lag, dep, dep_lag, section, offset, total, launch_bound = nodes[index]
                start = stream_end[track] + queue_lag
                if dep >= 0 and ends[dep] + dep_lag > start:
                    start = ends[dep] + dep_lag
                if kind == POST:
                    launched = host[section] + offset
                    starts[index] = launched if launched > start else start
                    self._arrive(links.get(index, ()), starts[index], arrived, latest, needed, waiting, ready)
                    continue
                end, launched = start + total, host[section] + launch_bound
                ends[index] = end = launched if launched > end else end
                if end > stream_end[track]:
                    stream_end[track] = end
            elif kind == FINISH:
                for instance in links.get(index, ()):
                    if arrived[instance] < needed[instance]:
                        self.at = at
                        return instance
                self._finish(index, latest)
            elif kind == ANCHOR:
                self._anchor(index)
            elif kind == MARK:
                section, offset = self.mark_at[index]
                self.marks.append(host[section] + offset)
        self.at = len(order)
        return None

    def _arrive(
        self,
        instances: Sequence[int],
        start: int,
        arrived: list[int],
        latest: list[int],
        needed: list[int],
        waiting: dict[int, list[int]],
        ready: deque[int],
    ) -> None:
        for instance in instances:
            arrived[instance] += 1
            if not self.on_time and start > latest[instance]:
                latest[instance] = start
            if arrived[instance] >= needed[instance] and instance in waiting:
                ready.extend(waiting.pop(instance))

    def _finish(self, node: int, latest: list[int]) -> None:
        start, track = self.starts[node], self.node[node][0]
        last = start
        for instance in self.rank.links.get(node, ()):
            if latest[instance] > last:
                last = latest[instance]
        self.ends[node] = end = last + self.transfer[node]
        self.comm_busy += end - start
        if end > self.stream_end[track]:
            self.stream_end[track] = end

    def _anchor(self, index: int) -> None:
        call = self.host[index] + self.call[index]
        if index in self.freed:
            fetched = call
        elif self.kind[index] == Anchor.LOADER:
            fetched = max(call, self.ready_at[index])
        else:
            target = self.target[index]
            fetched = max(call, self.ends[target] if target >= 0 else call) + self.tail[index]
        self.host[index + 1] = fetched
