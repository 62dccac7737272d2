"""Every epoch comes in the same order: `set_epoch` is not called.

What it detects: a pass over the training data begins with the DistributedSampler in the state of the pass before,
though it shuffles.
Why it matters: DistributedSampler draws its order from seed and epoch. Without `set_epoch` every epoch has the order,
the batches and the split over ranks of the first one; on some ranks only, ranks read each other's samples.
How to fix: `sampler.set_epoch(epoch)` before each pass, on every rank.
Limits: needs ddprof's own capture and at least one whole pass that was followed by another. Samplers with a way of
their own to draw indices, and loaders that frameworks tell the epoch, are not accused.
Sources: torch.utils.data.distributed.DistributedSampler documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.training.copies import at_line
from ddprof.finding_ids import TRAINING_SET_EPOCH
from ddprof.findings import Check, Evidence, Fix, Remark
from ddprof.sidecar.training import ShuffledPasses


def detect(job: JobFacts) -> Iterator[Remark]:
    """Ranks whose training loader repeats its order."""
    by_rank: dict[int, ShuffledPasses] = {}
    shuffling = 0
    for rank, facts in zip(job.rank_ids, job.ranks, strict=True):
        training = [passes for passes in facts.sidecar.sampler_passes if passes.trains]
        shuffling += bool(training)
        repeated = next((passes for passes in training if passes.repeated), None)
        if repeated is not None:
            by_rank[rank] = repeated
    if not by_rank:
        return
    first = by_rank[min(by_rank)]
    everywhere = len(by_rank) == shuffling
    every = first.repeated == first.begun - 1
    order = "every epoch comes" if every else f"{first.repeated} of {first.begun} passes over the data come"
    yield Remark(
        id=CHECK.id,
        summary=f"{order} in the order of the previous one: set_epoch is not called on the DistributedSampler",
        ranks=() if everywhere else tuple(sorted(by_rank)),
        severity="warning",
        evidence=(
            Evidence(f"{first.repeated} of {first.begun} passes over the data began like the previous one"),
            *at_line("iterated", first.line),
        ),
        fixes=(
            Fix(
                setting="sampler.set_epoch",
                current="not called",
                suggested="called before each pass, on every rank",
                patch="for epoch in range(epochs):\n    sampler.set_epoch(epoch)\n    for batch in loader:",
                why="each epoch then has its own order and its own split over ranks",
                source="torch.utils.data.distributed.DistributedSampler documentation",
            ),
        ),
    )


CHECK = Check(TRAINING_SET_EPOCH, "Every epoch in the same order", detect)
