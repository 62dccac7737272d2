"""The input of a workload: slow storage, too few workers, one late rank, a sampler that does not shard."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler, Sampler

from ddprof.workloads.arguments import Switches
from ddprof.workloads.job import Place

EPOCH_STEPS = 64  # a set is this long; longer runs go through it again
SHORT_EPOCH_STEPS = 4  # where each pass costs something
ENOUGH_WORKERS = 4
WORKERS = {"few-workers": 1, "new-workers": 1, "one-file": 2}


class Stored(Dataset[Any]):
    """A data set behind storage that answers a batch after `batch_s` seconds; `one_file`: one reader at a time."""

    def __init__(self, samples: Dataset[Any], batch_s: float, batch_size: int, one_file: bool = False) -> None:
        self.samples = samples
        self.batch_s = batch_s
        self.batch_size = batch_size
        self.file: AbstractContextManager[Any] = multiprocessing.Lock() if one_file else nullcontext()

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        with self.file:
            time.sleep(self.batch_s * len(indices) / self.batch_size)
        return [self.samples[index] for index in indices]


def storage_s(switches: Switches) -> float:
    """Seconds that reading a batch waits for storage on this rank."""
    slow = any(switches.on(fault, until="storage") for fault in ("slow-loader", "few-workers", "one-file"))
    return switches.delay_s if slow or switches.here("loader-straggler", until="storage") else 0.0


def workers(switches: Switches, wanted: int | None) -> int:
    """DataLoader workers: those of the command line, else as many as the fault is about."""
    if switches.fixed_by("workers"):
        return ENOUGH_WORKERS
    return WORKERS.get(switches.fault, 0) if wanted is None else wanted


def epoch_steps(switches: Switches) -> int:
    """Steps of a pass over the data."""
    return SHORT_EPOCH_STEPS if switches.fault == "new-workers" else EPOCH_STEPS


def make_loader(
    samples: Dataset[Any],
    options: argparse.Namespace,
    place: Place,
    shards: tuple[int, int] | None = None,
) -> DataLoader[Any]:
    """The loader of this rank. `shards`: (replicas, own replica) where they are not the ranks of the job."""
    switches = place.switches
    delay_s = storage_s(switches)
    one_file = switches.on("one-file", until="own-files")
    stored = Stored(samples, delay_s, options.batch_size, one_file) if delay_s else samples
    count = workers(switches, options.workers)
    replicas, replica = shards or (place.world_size, place.rank)
    sampler: Sampler[int]
    if switches.on("unsharded", until="sharded"):
        sampler = RandomSampler(samples)
    else:
        sampler = DistributedSampler(samples, replicas, replica, shuffle=True, seed=options.seed)
    return DataLoader(
        stored,
        batch_size=options.batch_size,
        sampler=sampler,
        num_workers=count,
        persistent_workers=count > 0 and not switches.on("new-workers", until="persistent"),
        pin_memory=place.device.type == "cuda",
        drop_last=True,
    )


def batches(loader: Any, steps: int) -> Iterator[Any]:
    """`steps` batches, over as many epochs as they take."""
    done = 0
    for epoch in itertools.count():
        sampler = getattr(loader, "sampler", None)
        if isinstance(sampler, DistributedSampler):
            sampler.set_epoch(epoch)
        for batch in loader:
            if done == steps:
                return
            yield batch
            done += 1


def unequal_share(step: int, rank: int, world_size: int) -> float:
    """Work of a rank relative to a full batch: half for every rank but one, one and a half for a rank that changes."""
    return 1.5 if (step * 7 + step // 3) % world_size == rank else 0.5


def share_of_work(switches: Switches, step: int, world_size: int) -> float:
    """Share of a full batch (or sequence) for this rank: unequal, or with the fix the mean of all ranks."""
    if not (switches.on("imbalance") or switches.on("uneven-shards")):
        return 1.0
    if switches.fixed_by("balanced"):
        return (1.5 + 0.5 * (world_size - 1)) / world_size
    if switches.on("uneven-shards"):
        return 1.5 if switches.rank == switches.fault_rank else 0.5
    return unequal_share(step, switches.rank, world_size)
