"""What decides how a training runs beside its speed: samples per optimizer step, and the learning rate."""

from __future__ import annotations

import statistics

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.whole_run.sampling import shares_replica
from ddprof.analyzers.training.catalogue import remarks
from ddprof.report.model import Training


def training_of(job: JobFacts) -> Training:
    """What the capture knows of it. Where ranks share a model replica, samples per step are not known."""
    per_rank = None if shares_replica(job) else _samples_per_rank(job)
    optimizer = next((o for f in job.ranks if (o := f.sidecar.optimizer).name), None)
    rates = [] if optimizer is None else [rate for rate in optimizer.learning_rates if rate is not None]
    return Training(
        samples_per_rank=per_rank,
        samples_per_step=None if per_rank is None else per_rank * job.world_size,
        optimizer=(optimizer.name or "") if optimizer else "",
        learning_rate=max(rates, default=None),
        remarks=remarks(job),
    )


def _samples_per_rank(job: JobFacts) -> float | None:
    """Samples of one optimizer step, the typical step of each rank, mean over ranks; every micro-batch counts."""
    found = []
    for facts in job.ranks:
        samples = [fed.samples for fed in facts.sidecar.batches if fed.samples]
        if not samples:
            return None
        found.append(statistics.median(samples))
    return statistics.fmean(found) if found else None
