"""DataLoader with worker processes: batches are made in parallel and delivered in order."""

from __future__ import annotations

from benchmarks.oracle.draws import factors
from benchmarks.oracle.rank import Rank
from benchmarks.oracle.world import World


class BatchQueue:
    """When the batches of one rank are ready. The run is recorded in mid-training, so workers are already at work.

    A worker has its next batches queued as long as fewer than `prefetch` of its batches are undelivered.
    """

    def __init__(self, world: World, rank: int, start_us: float) -> None:
        loader = world.loader
        self._noise = factors(world.seed, "loader", rank, 0, loader.jitter)
        self._cost = loader.cost_us * world.loader_scale[rank]
        self._workers, self._window = loader.workers, loader.workers * loader.prefetch
        self._delivered: list[float] = []
        self._ready: list[float] = []
        # The first batch is there; workers are out of step with one another, how far differs between ranks.
        phase = factors(world.seed, "loader phase", rank, 0, 0.12)[0]
        pace = self._cost / self._workers
        self._first = [start_us + pace * w * min(max(phase, 0.2), 1.6) for w in range(self._workers)]

    def wait(self, now: float) -> float:
        """Deliver the next batch: the time at which it is there, not before `now`."""
        index = len(self._ready)
        if index < self._workers:
            ready = self._first[index]
        else:
            asked = self._delivered[index - self._window] if index >= self._window else 0.0
            ready = max(self._ready[index - self._workers], asked) + self._cost * self._noise[index % 512]
        self._ready.append(ready)
        there = max(now, ready)
        self._delivered.append(there)
        return there

    def rest(self, us: float) -> None:
        """The workers stand still for `us`: every time moves by it."""
        for times in (self._first, self._ready, self._delivered):
            times[:] = [time + us for time in times]


class ReadyBatches:
    """A loader whose next batch is there after `late_us`."""

    def __init__(self, late_us: float) -> None:
        self._late_us = late_us

    def wait(self, now: float) -> float:
        """Deliver the next batch."""
        return now + self._late_us


def next_batch(rank: Rank, queue: BatchQueue | ReadyBatches) -> None:
    """`__next__` of the DataLoader: waits for the batch, then its fixed overhead."""
    waited = queue.wait(rank.t) - rank.t
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    rank.occupy("user_annotation", name, waited + rank.world.loader.overhead_us, "dataloader")
