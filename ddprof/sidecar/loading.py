"""Settings of a loader, the cost of its fetches, and the lines of its workers meanwhile."""

from __future__ import annotations

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from ddprof.sidecar.bounded import Count, Rank, Real, Whole


class SamplerSettings(Struct, frozen=True):
    """The innermost sampler; `sharded` False: every rank reads the same samples."""

    name: str | None = field(name="class", default=None)
    num_replicas: Rank | None = None
    rank: Rank | None = None
    shuffle: bool | None = None
    sharded: bool | None = None
    even: bool | None = None
    epoch: Whole | None = None


class LoaderSettings(Struct, frozen=True):
    """Settings of the DataLoader that feeds the optimizer."""

    num_workers: Whole | None = None
    prefetch_factor: Whole | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    batch_size: Whole | None = None
    drop_last: bool | None = None
    dataset: str | None = None
    dataset_length: Whole | None = None
    multiprocessing_context: str | None = None
    batches_per_epoch: Whole | None = None
    sampler: SamplerSettings | None = None

    def known(self) -> dict[str, object]:
        """Known settings of the loader and its sampler ("sampler.class"), by the names in the file."""
        loader = to_builtins(self)
        sampler = loader.pop("sampler") or {}
        every = {**loader, **{f"sampler.{name}": value for name, value in sampler.items()}}
        return {name: value for name, value in every.items() if value is not None}


class FetchSpan(Struct, frozen=True, gc=False, array_like=True):
    """One fetch of one batch by a worker of a rank."""

    worker: Count
    start_ns: Count
    dur_ns: Count


class WorkerLine(Struct, frozen=True):
    """A line of the script in which a rank's workers were sampled during fetches: `share` of these samples.

    `call`: what they call there and wait in ("flock", "recv"), `kind` what that is: "lock", "network" or "database";
    both None where it is none of these, or not known.
    """

    file: str
    line: Whole
    function: str
    samples: Count
    share: Real
    call: str | None = None
    kind: str | None = None


class TimedFetches(Struct, frozen=True):
    """Cost of a batch: medians per batch, and equal quantiles of its time. None: written by older versions.
    `waited_ns`: without a CPU, of a worker that was ready to run, by its share of all batches' time; None also where
    the kernel does not count that.

    `workers` 0: fetched in the training process. Each worker's first batch pays for the start and is left out. `spans`:
    the first fetches of its workers. `lines`: their sampled lines meanwhile, most samples first. `turn_ns`: for workers
    that fetch one at a time (a lock, one file, one connection), the least time between two batches of the rank, however
    many workers it has; None where nothing shows that. `turn_ranks`: ranks of the host that share the lock; `alone_ns`:
    a fetch without waiting. The job stage sets these three.
    """

    workers: Whole
    fetch_ns: Whole
    samples: Count
    fetch_quantiles_ns: tuple[Whole, ...] = ()
    cpu_ns: Count | None = None
    collate_ns: Count | None = None
    waited_ns: Count | None = None
    turn_ns: Count | None = None
    turn_ranks: Count = 1
    alone_ns: Count | None = None
    spans: tuple[FetchSpan, ...] = ()
    lines: tuple[WorkerLine, ...] = ()

    @property
    def cpu_share(self) -> float | None:
        """CPU share of a batch's time; None where not recorded."""
        return self._share(self.cpu_ns)

    @property
    def waited_share(self) -> float | None:
        """Share of a batch's time in which its worker was ready to run and had no CPU; None where not recorded."""
        return self._share(self.waited_ns)

    @property
    def collate_share(self) -> float | None:
        """Share of a batch's time in collating; None where not recorded."""
        return self._share(self.collate_ns)

    def _share(self, part_ns: int | None) -> float | None:
        return None if part_ns is None or self.fetch_ns <= 0 else min(1.0, part_ns / self.fetch_ns)

    def with_turns(self, turn_ns: int, ranks: int, alone_ns: int) -> TimedFetches:
        """A copy in which the workers of so many ranks fetch one at a time."""
        return replace(self, turn_ns=turn_ns, turn_ranks=ranks, alone_ns=alone_ns)
