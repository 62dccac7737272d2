"""The devices: streams in order, event dependencies, and collectives that start when their last member has arrived."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
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
    waiting: DeviceOp | None = None  # the collective member at the head that has started and waits for its peers


class Devices:
    """All streams of all ranks. `changed` is called with a rank whenever one of its operations gets an end."""

    def __init__(self, ranks: int, changed: Callable[[int], None]) -> None:
        self._streams: list[dict[int, Stream]] = [{} for _ in range(ranks)]
        self._changed = changed

    def submit(self, op: DeviceOp) -> None:
        """Queue an operation on its stream and run what can run."""
        self._streams[op.rank].setdefault(op.stream, Stream()).queue.append(op)
        self.advance(op.rank)

    def advance(self, rank: int) -> None:
        """Resolve every operation of a rank whose dependencies are known."""
        progress = True
        while progress:
            progress = False
            for stream in self._streams[rank].values():
                progress |= self._drain(stream)

    def _drain(self, stream: Stream) -> bool:
        moved = False
        while stream.queue:
            op = stream.queue[0]
            if op.end is None and not self._try_start(stream, op):
                return moved
            stream.queue.popleft()
            stream.waiting = None
            assert op.end is not None
            stream.free_at = op.end
            moved = True
        return moved

    def _try_start(self, stream: Stream, op: DeviceOp) -> bool:
        """Give `op` its start (and end, unless it waits for peers). False while it cannot finish yet."""
        if stream.waiting is op:
            return False
        ready = max(op.launch_end + LAUNCH_LATENCY_US, stream.free_at + STREAM_GAP_US)
        for dep in op.deps:
            if dep.end is None:
                return False
            ready = max(ready, dep.end + STREAM_GAP_US)
        op.start = ready
        if op.collective is None:
            op.end = ready + op.dur
            self._changed(op.rank)
            return True
        stream.waiting = op
        return self._arrive(op.collective, op)

    def _arrive(self, collective: Collective, op: DeviceOp) -> bool:
        collective.members.append(op)
        if len(collective.members) < collective.size:
            return False
        collective.last_arrival = max(m.start or 0.0 for m in collective.members)
        for member in collective.members:
            member.end = collective.last_arrival + collective.transfer_us + collective.tails.get(member.rank, 0.0)
            member.dur = member.end - (member.start or 0.0)
        for member in collective.members:
            self._changed(member.rank)
        return True
