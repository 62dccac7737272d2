"""Every rank waits for its data loader.

What it detects: all ranks spend a clear part of each step in the loader's `__next__`, at once or in turn, and removing
it makes the step shorter.
Why it costs: the device is idle until the batch is there.
How the gain is priced: the run is replayed with every batch already in the prefetch queue.
How to fix: more workers, deeper prefetch, persistent workers, cheaper decoding, faster storage.
Limits: where ddprof captured the run, every fetch was timed inside the workers, and the finding says whether it is
bound by the CPU, by waiting or by collating. Elsewhere the workers' time shows only in the waits that it causes.
Sources: TensorBoard plugin rule (5 % of the step); ml-engineering worker sweep (5.39 s to 0.88 s for 0 to 4 workers).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof import averages
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.loader_cost import FetchCost, evidence, fetch_cost
from ddprof.analyzers.rules.evidence.settings import text
from ddprof.analyzers.rules.evidence.spans import largest_span
from ddprof.findings import Abstention, Candidate, Change, Fix, Rule
from ddprof.tables import Array
from ddprof.units import format_ranks, format_share, format_us

MIN_SHARE = 0.01  # of the step inside the loader before it is worth pricing
CLEAR_SHARE = 0.15  # of the late loaders' longest fetch: how long the longest fetch of the others may be
CLEAR_FACTOR = 10.0  # or this many times the slowest mean of the others: a longer fetch of theirs is then chance
OWN_SHARE = 0.05  # the same beside ranks whose loaders are far slower still
LATE_FACTOR = 2.0  # a loader this much slower than the typical one is a straggler, not starvation


def late_loaders(measures: Measures) -> Array:
    """Positions whose loader takes clearly longer than the typical rank's; at most half of the ranks."""
    late = _behind(measures)
    return late if len(late) and _alone(measures, late) else np.empty(0, np.int64)


def _behind(measures: Measures) -> Array:
    """Positions whose loader takes longer than the typical rank's; at most half of the ranks."""
    loader_us, step_us = measures.host_spans_us["dataloader"], measures.step_us
    if len(loader_us) < 2:
        return np.empty(0, np.int64)
    typical = averages.typical(loader_us)
    late = (loader_us > LATE_FACTOR * typical) & (loader_us - typical > 2 * MIN_SHARE * step_us)
    return np.flatnonzero(late) if late.sum() <= len(loader_us) / 2 else np.empty(0, np.int64)


def _alone(measures: Measures, late: Array) -> bool:
    """Whether only these loaders are slow: the others' queues are then full and none of their fetches blocks. In a
    starved job the others' fetches block now and then.
    """
    loader_us, longest_us = measures.host_spans_us["dataloader"], measures.longest_fetch_us
    others = np.setdiff1d(np.arange(len(loader_us)), late)
    clear = float(longest_us[others].max()) < CLEAR_SHARE * float(longest_us[late].min())
    return clear or float(loader_us[late].min()) > CLEAR_FACTOR * float(loader_us[others].max())


def workers_fix(measures: Measures, waited_us: float, position: int | None = None) -> Fix:
    """More workers: as many as deliver a batch per step without its wait, where the capture timed them; else twice as
    many."""
    workers = measures.settings.loader.num_workers
    cost = None if position is None else fetch_cost(measures.job.ranks[position])
    why = f"the step waits {format_us(waited_us)} for its batch; workers prepare batches while the device computes"
    if cost is None:
        suggested = 4 if not workers else 2 * workers
    else:
        busy_us = measures.step_us - waited_us
        suggested = cost.workers_for(busy_us) + (0 if cost.timed.workers else 1)
        short = suggested * busy_us < cost.fetch_us
        if workers and suggested <= workers:
            suggested = workers
        if short or suggested == workers:
            why += f"; the {cost.cores} cores of this rank cannot make a batch per step: make the batch cheaper too"
    if workers and suggested == workers:
        return Fix(
            setting="cost of a batch",
            suggested="cheaper: cache, decode less, augment on the device",
            why=why,
            source="timed inside the loader by ddprof",
        )
    arguments = execution_of(measures.job).loader_arguments
    return Fix(
        setting="num_workers",
        current=text(workers),
        suggested=str(suggested),
        patch=f"DataLoader(..., num_workers={suggested}, prefetch_factor=4, persistent_workers=True{arguments})",
        why=why,
        source="torch.utils.data.DataLoader documentation",
    )


def cheaper_fix(cost: FetchCost) -> Fix | None:
    """A fix that makes the batch itself cheaper, by what its time is spent on."""
    if cost.kind == "collate":
        setting_, suggested = (
            "collate_fn",
            "collate in fewer copies (preallocate, torch.stack once, no Python per value)",
        )
        patch = "def collate(samples):\n    return torch.stack(samples)  # one copy, in C"
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


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """All loaders slow."""
    loader_us = measures.host_spans_us["dataloader"]
    if not measures.host_counts["dataloader"].any():
        yield Abstention(RULE.id, "no loader range in the trace: fetching data cannot be told from other host work")
        return
    typical = averages.typical(loader_us)
    behind = _behind(measures)
    late = behind if len(behind) and _alone(measures, behind) else behind[:0]
    # Where a few loaders are far behind, the time of the others must be worth a finding of its own.
    floor = OWN_SHARE if len(late) else MIN_SHARE
    # Some loaders are far behind, the others now and then: their queues fill while all wait for the slowest.
    in_turn = len(behind) > 0 and not len(late)
    if typical < floor * measures.step_us and not in_turn:
        return
    ledger = measures.cause_us("dataloader")
    worst = int(np.argmax(loader_us))
    whose = "on the typical rank" if not in_turn else f"on {format_ranks(measures.ranks(np.array([worst])))}"
    share = float(loader_us[worst] if in_turn else typical) / measures.step_us
    cost = fetch_cost(measures.job.ranks[worst])
    cheaper = None if cost is None else cheaper_fix(cost)
    yield Candidate(
        id=RULE.id,
        summary=f"every rank waits for its data loader, {format_share(share)} of each step {whose}",
        ranks=(),
        lost_us=float(ledger.mean()),
        changes=(Change("instant_loader"),),
        confidence=0.95 if measures.steps >= 2 else 0.8,
        evidence=(
            *(() if cost is None else (evidence(cost, measures.job.rank_ids[worst]),)),
            *largest_span(measures, worst, "dataloader"),
        ),
        fixes=(
            workers_fix(measures, float(ledger.max()), worst),
            *(() if cheaper is None else (cheaper,)),
            Fix(
                setting="prefetch_factor",
                current=text(measures.settings.loader.prefetch_factor),
                suggested="4",
                why="a deeper queue covers batches that take longer than others",
                source="torch.utils.data.DataLoader documentation",
            ),
        ),
    )


RULE = Rule("input.starved", "Every rank waits for its data loader", detect, bound="input")
