"""Fixes for batches that come too late, by who makes them and where the time of a batch goes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.whole_run.cpu_waits import BUSY_SHARE, traced_shares
from ddprof.analyzers.job.whole_run.unprofiled_steps import unprofiled_step_us
from ddprof.analyzers.rules.evidence.loader_cost import (
    FetchCost,
    evidence,
    fetch_cost,
    line_evidence,
    line_of,
    makes_most,
)
from ddprof.derived_once import remembered
from ddprof.finding_ids import INPUT_STARVED, INPUT_STRAGGLER
from ddprof.findings import Alters, Basis, Candidate, Evidence, Fix
from ddprof.tables import Array
from ddprof.units import format_ranks, format_share, format_us


def cheaper_fix(cost: FetchCost | None, ranks: Sequence[RankFacts]) -> Fix | None:
    """The fix that makes a batch cheaper, by the main part of its time; None where that is unknown. `ranks`: those that
    make theirs alike."""
    if cost is None:
        return None
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
    elif cost.kind == "cpu" and (made_in := makes_most(cost, ranks)):
        setting_, patch = made_in, ""
        suggested = "do it once and keep the result, for a whole batch at once, or in a library in C"
    elif cost.kind == "cpu":
        setting_, suggested = "transforms", "decode once and cache, store images as large as used, augment on the GPU"
        patch = "transforms = torch.nn.Sequential(...).to(device)  # apply to the batch on the device, not per sample"
    else:
        return None
    return Fix(
        setting=setting_,
        suggested=suggested,
        patch=patch,
        why=f"a batch takes {format_us(cost.fetch_us)} to make",
        source="timed inside the loader by ddprof",
        alters=Alters.KEPT if cost.kind == "cpu" else None,
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


# Loader workers that keep ranks from their cores: both are ready to run and have no CPU.

# Of a step. Workers that only stack rows cost up to 0.07 of steps of 4 to 14 ms on two cores in nine of 199 healthy
# twins, which no setting changes; those of the four scripts whose rows cost something 0.11 or more (2026-11-28).
MIN_COST = 0.08


class TakenCores(Struct, frozen=True):
    """Cores that work beside training takes from ranks: `cores` that each rank's work computes on, shape (ranks,), and
    its `part` of the `usable` ones of a host; what of the step it costs, and the least of it.
    """

    cores: Array
    usable: int
    part: float
    cost: float
    least: float

    def candidate(
        self, measures: Measures, rule_id: str, who: str, evidence: tuple[Evidence, ...], fixes: tuple[Fix, ...]
    ) -> Candidate:
        """The finding on this work; `who` uses how many of the cores, in words."""
        waited = float(traced_shares(measures.job.ranks).waited.mean())
        return Candidate(
            id=rule_id,
            summary=f"{who}; ranks wait for a CPU for {format_share(waited)} of the time",
            ranks=measures.theirs(self.cores),
            lost_us=self.cost * measures.step_us,
            basis=Basis.TIMED,
            evidence=evidence,
            fixes=fixes,
            band=1 - self.least / self.cost,
            times_us=tuple((self.cores * measures.step_us).tolist()),
            is_bound=True,
        )


def taken_cores(measures: Measures, cores: Array) -> TakenCores | None:
    """Cores that work beside the ranks takes from them, of which it computes on so many for each rank; None where it
    costs little, or waits were not counted.

    Ranks lose the cores that it leaves them too few of, but no more than waits for a CPU stretch their computation; and
    they lose nothing while they could not run anyway.
    """
    processors, shares = measures.settings.processors, traced_shares(measures.job.ranks)
    if not processors.usable or not np.isfinite(shares.waited).all():
        return None
    many = processors.local_ranks or len(cores)
    on_cpu, waited, computing = float(shares.on_cpu.mean()), float(shares.waited.mean()), float(cores.mean()) * many
    taken = 1.0 - max(0.0, processors.usable - computing) / min(many, processors.usable)
    cost = max(0.0, min(taken, waited / max(on_cpu + waited, 1e-9)))
    least, part = cost * min(1.0, on_cpu + waited), min(1.0, computing / processors.usable)
    return TakenCores(cores, processors.usable, part, cost, least) if cost >= MIN_COST else None


@remembered
def taken_by_workers(measures: Measures) -> TakenCores | None:
    """Cores that loader workers take from ranks; None where their own waits for a CPU are short or not counted."""
    timed = [facts.sidecar.fetching for facts in measures.job.ranks]
    shares = np.array([one.waited_share for one in timed if one is not None and one.workers], float)
    if not len(shares) or not shares.max() >= BUSY_SHARE:  # NaN: not counted
        return None
    cpu_us = np.array([(one.cpu_ns or 0) / 1e3 if one is not None and one.workers else 0.0 for one in timed])
    step_us = unprofiled_step_us(measures.job.ranks) or measures.step_us
    return taken_cores(measures, cpu_us * measures.host_counts["dataloader"] / step_us)


def taking(measures: Measures, alone: bool) -> Candidate | None:
    """A finding on workers that take the cores of ranks; `alone`: those of few ranks, which it names, else of all."""
    taken = taken_by_workers(measures)
    numbers = () if taken is None else measures.theirs(taken.cores)
    if taken is None or bool(numbers) is not alone:
        return None
    worst = int(np.argmax(taken.cores))
    rank, cost = measures.job.rank_ids[worst], fetch_cost(measures.job.ranks[worst])
    part = format_share(taken.part)
    used = f" of {format_ranks(numbers)} use {taken.cores[worst]:.1f}" if alone else f" use {part}"
    said = (*evidence(cost, rank), *line_evidence(cost, rank, measures.job.ranks))
    of_all = (Evidence(f"all workers use {part} of the cores' time"),) if alone else ()
    fixes = tuple(filter(None, (cheaper_fix(cost, measures.job.ranks), _FEWER)))
    return taken.candidate(
        measures,
        INPUT_STRAGGLER if alone else INPUT_STARVED,
        f"loader workers{used} of {taken.usable} cores",
        (*said, *of_all),
        fixes,
    )


_FEWER = Fix(
    setting="cores of the loader's workers",
    suggested="cores of their own, or fewer workers while these still deliver a batch per step",
    patch="torch.utils.data.DataLoader(..., worker_init_fn=lambda worker: os.sched_setaffinity(0, CORES_OF_LOADERS))",
    why="workers and training threads wait for the same cores",
    source="PyTorch performance tuning guide",
)
