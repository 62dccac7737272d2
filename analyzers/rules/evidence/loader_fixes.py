"""Fixes for batches that come too late, by who makes them and where the time of a batch goes."""

from __future__ import annotations

from ddprof.analyzers.rules.evidence.loader_cost import FetchCost, line_of
from ddprof.findings import Fix
from ddprof.units import format_us


def cheaper_fix(cost: FetchCost) -> Fix | None:
    """The fix that makes a batch cheaper, by the main part of its time; None where that is unknown."""
    if cost.turn_us:
        return _own_files(cost)
    if cost.kind == "collate":
        setting_, suggested = (
            "collate_fn",
            "collate in fewer copies (preallocate, torch.stack once, no Python per value)",
        )
        patch = "def collate(samples):\n    return torch.stack(samples)  # one copy, in C"
    elif cost.kind == "wait" and (line := line_of(cost)) is not None and line.kind == "network":
        setting_, suggested = "storage", "many samples per request, requests ahead of need, or a copy on local disk"
        patch = "def __getitems__(self, indices):\n    return self.client.get_many(indices)  # a request per batch"
    elif cost.kind == "wait":
        setting_, suggested = "storage", "local disk or memory, larger sequential reads, sharded archives"
        patch = "dataset = torch.utils.data.Subset(local_copy, indices)  # or webdataset / mosaicml-streaming shards"
    elif cost.kind == "cpu":
        setting_, suggested = "transforms", "decode once and cache, smaller images, decode and augment on the GPU"
        patch = "transforms = torch.nn.Sequential(...).to(device)  # apply to the batch on the device, not per sample"
    else:
        return None
    return Fix(
        setting=setting_,
        suggested=suggested,
        patch=patch,
        why=f"a batch takes {format_us(cost.fetch_us)} to make",
        source="timed inside the loader by ddprof",
    )


def _own_files(cost: FetchCost) -> Fix:
    """The fix for a lock: separate files per worker. More workers would only wait longer for it."""
    ranks = cost.timed.turn_ranks
    owner = "every worker" if ranks < 2 else "every worker of every rank"
    gain = f"more workers gain nothing while they share it: a batch takes {format_us(cost.fetch_us)} to make"
    if cost.timed.alone_ns:
        gain += f", {format_us(cost.timed.alone_ns / 1e3)} without waiting for the lock"
    return Fix(
        setting="dataset",
        suggested=f"a separate file, connection or shard for {owner}, no shared lock",
        patch="DataLoader(..., worker_init_fn=lambda worker: get_worker_info().dataset.open())  # not in __init__",
        why=gain,
        source="timed inside the loader by ddprof",
    )


def made_beside(line: str) -> str:
    """Maker of the batches that a training thread takes from a queue; `line`: "" where it was not sampled."""
    return f"a thread makes, in {line}" if line else "another thread or process makes"


def thread_fix(line: str) -> Fix:
    """The fix for a thread of the script that makes batches more slowly than steps use them."""
    return _to_workers(
        line or "the thread or process that fills the queue",
        "runs in one thread beside the training loop",
        "runs in several workers of a DataLoader, which are processes, or is made cheaper",
        "one thread makes batches more slowly than steps use them; Python threads share one interpreter",
    )


def sampler_fix(line: str) -> Fix:
    """The fix for a sampler that takes longer than the step."""
    return Fix(
        setting=line,
        current="draws in the training process, whatever num_workers is",
        suggested="an epoch's order in one call of torch or numpy (randperm, multinomial, argsort), made ahead of time",
        patch="order = torch.multinomial(weights, samples_per_epoch).tolist()  # once per epoch, in __iter__",
        why="each step waits for the indices of a batch, which no worker draws",
        source="torch.utils.data.DataLoader documentation: samplers",
    )


def loop_fix(line: str, trains: bool) -> Fix:
    """The fix that moves batch preparation from the training thread, or that of an inference, to workers."""
    if not trains:
        return _to_workers(
            line,
            "runs between calls of the model",
            "runs in the workers of a DataLoader (__getitem__ or collate_fn)",
            "the model waits while inputs are prepared; workers do so during the previous call",
        )
    return _to_workers(
        line,
        "runs in the training loop",
        "runs in the workers of a DataLoader (__getitem__ or collate_fn), or once before training",
        "the step waits while the training thread prepares its batch; workers do so during the previous step",
    )


def _to_workers(line: str, current: str, suggested: str, why: str) -> Fix:
    return Fix(
        setting=line,
        current=current,
        suggested=suggested,
        patch="DataLoader(dataset, collate_fn=prepare, num_workers=4, prefetch_factor=4, persistent_workers=True)",
        why=why,
        source="torch.utils.data.DataLoader documentation",
    )
