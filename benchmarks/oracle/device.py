"""The devices: streams in order, event dependencies, and collectives that start when their last member has arrived."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

LAUNCH_LATENCY_US = 3.0  # end of the launch call -> earliest start on an idle device
STREAM_GAP_US = 1.2  # between two operations that follow one another


class DeviceOp:
    """A kernel or copy: `start` and `end` are None until everything it depends on is known."""

    __slots__ = (
        "args",
        "bytes",
        "cause",
        "collective",
        "correlation",
        "deps",
        "dur",
        "end",
        "external",
        "launch_end",
        "launch_start",
        "name",
        "pool",
        "rank",
        "start",
        "step",
        "stream",
    )

    def __init__(self, rank: int, stream: int, cause: str, name: str, dur: float) -> None:
        self.rank, self.stream, self.cause, self.name, self.dur = rank, stream, cause, name, dur
        self.start: float | None = None
        self.end: float | None = None
        self.launch_start = self.launch_end = 0.0
        self.deps: tuple[DeviceOp, ...] = ()
        self.collective: Collective | None = None
        self.correlation = self.external = 0
        self.bytes = 0.0
        self.step = -1  # the recorded step that launched it; -1: launched before the recording
        self.args: Any = None
        self.pool = ""  # what it is part of, for the pipeline's bubble: "body" or "optimizer"


@dataclass
class Collective:
    """One rendezvous: `transfer_us` runs after the last of `size` members has started."""

    size: int
    transfer_us: float
    tails: dict[int, float]  # rank -> how much later than the common end its kernel ends
    members: list[DeviceOp] = field(default_factory=list)
    last_arrival: float = 0.0


@dataclass
class Stream:
    """Operations waiting to run in order, and when the last one that ran ended."""

    queue: deque[DeviceOp] = field(default_factory=deque)
    free_at: float = -1e18
    scheduled: DeviceOp | None = None  # the head, once its start is known


class Devices:
    """All streams of all ranks, driven in the order of time.

    A compute kernel that starts while communication runs (or waits) on its device takes `contention` longer: the
    communication kernel holds multiprocessors.
    """

    def __init__(self, ranks: int, contention: float) -> None:
        self._streams: list[dict[int, Stream]] = [{} for _ in range(ranks)]
        self._communicating: list[list[DeviceOp]] = [[] for _ in range(ranks)]
        self._contention = contention
        self._due: list[tuple[float, int, Stream]] = []
        self._count = 0

    def submit(self, op: DeviceOp) -> None:
        """Queue an operation on its stream."""
        stream = self._streams[op.rank].setdefault(op.stream, Stream())
        stream.queue.append(op)
        if stream.queue[0] is op:
            self._schedule(stream)

    def step(self) -> list[DeviceOp] | None:
        """Start the operation that is due first; the operations whose end is now known. None when none is due."""
        if not self._due:
            return None
        at, _, stream = heappop(self._due)
        op = stream.queue[0]
        op.start = at
        if op.collective is not None:
            if op.cause == "comm":
                self._communicating[op.rank].append(op)
            ended = _arrive(op.collective, op)
        else:
            if op.cause == "compute" and self._contention and self._communicates(op.rank, at):
                op.dur *= 1.0 + self._contention
            op.end = at + op.dur
            ended = [op]
        for done in ended:
            self._finish(done)
        return ended

    def _communicates(self, rank: int, at: float) -> bool:
        """True where a communication kernel is on the device at a time (operations start in the order of time)."""
        active = [op for op in self._communicating[rank] if op.end is None or op.end > at]
        self._communicating[rank] = active
        return bool(active)

    def _finish(self, op: DeviceOp) -> None:
        """An end is known: the stream goes on, and streams that waited for it may."""
        streams = self._streams[op.rank]
        own = streams[op.stream]
        assert op.end is not None
        own.queue.popleft()
        own.free_at, own.scheduled = op.end, None
        for stream in streams.values():
            self._schedule(stream)

    def _schedule(self, stream: Stream) -> None:
        """Give the head of a stream its place in time if everything it waits for has an end."""
        if not stream.queue or stream.scheduled is stream.queue[0]:
            return
        op = stream.queue[0]
        ready = max(op.launch_end + LAUNCH_LATENCY_US, stream.free_at + STREAM_GAP_US)
        for dep in op.deps:
            if dep.end is None:
                return
            ready = max(ready, dep.end + STREAM_GAP_US)
        stream.scheduled = op
        self._count += 1
        heappush(self._due, (ready, self._count, stream))


def _arrive(collective: Collective, op: DeviceOp) -> list[DeviceOp]:
    """A member has started; with the last one, all of them get their end."""
    collective.members.append(op)
    if len(collective.members) < collective.size:
        return []
    collective.last_arrival = op.start or 0.0
    for member in collective.members:
        member.end = collective.last_arrival + collective.transfer_us + collective.tails.get(member.rank, 0.0)
        member.dur = member.end - (member.start or 0.0)
    return collective.members
