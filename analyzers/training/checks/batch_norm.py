"""BatchNorm takes its statistics from a small batch on each rank.

What it detects: BatchNorm layers in training mode that are not synchronised, in data-parallel training, with few
samples per rank in a forward.
Why it matters: each rank normalises by the mean and variance of its own few samples. The estimate is noisy, and the
model learns worse than with the same global batch on fewer ranks; nothing fails.
How to fix: SyncBatchNorm, a larger batch per rank, or a normalisation that does not depend on the batch.
Limits: needs ddprof's own capture and a DataLoader that hands out tensors: what it hands out at once is taken for the
batch. Layers in evaluation mode (frozen statistics) are left out. With large images even few samples may do.
Sources: Wu 2018 (Group Normalization, figure 1): ImageNet error by images per worker; 32 and 16 equal, 8 one point
worse, 4 four, 2 eleven.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.training.copies import MODULE, sums_every_gradient
from ddprof.finding_ids import TRAINING_BATCH_NORM
from ddprof.findings import Check, Evidence, Fix, Remark
from ddprof.sidecar import Sidecar
from ddprof.units import format_count

SMALL_BATCH = 8  # samples per rank: the largest at which Wu 2018 measures a loss
_WRAPPED = ("ddp", "fsdp1", "fsdp2", "deepspeed")


def detect(job: JobFacts) -> Iterator[Remark]:
    """Data-parallel models with such layers."""
    if job.world_size < 2:
        return
    sidecar = next((facts.sidecar for facts in job.ranks if facts.sidecar.batch_norms), None)
    samples = batch_per_rank(job)
    if sidecar is None or samples is None or samples > SMALL_BATCH:
        return
    for norms in sidecar.batch_norms:
        if norms.kind in _WRAPPED or (norms.kind == MODULE and sums_every_gradient(job)):
            yield _remark(norms.layers, norms.name or "the model", norms.first, samples, job.world_size)
            return


def batch_per_rank(job: JobFacts) -> int | None:
    """Samples that a rank is handed at once, the typical rank and batch; None where it was not recorded."""
    sizes = [size for facts in job.ranks if (size := _batch(facts.sidecar)) is not None]
    return round(statistics.median(sizes)) if sizes else None


def _batch(sidecar: Sidecar) -> float | None:
    sizes = [fed.samples / fed.batches for fed in sidecar.batches if fed.batches and fed.samples]
    return statistics.median(sizes) if sizes else None


def _remark(layers: int, model: str, first: str, samples: int, world_size: int) -> Remark:
    return Remark(
        id=CHECK.id,
        summary=f"BatchNorm of {model} normalises by {format_count(samples, 'sample')} per rank: "
        f"{format_count(layers, 'layer')} not synchronised over the {world_size} ranks",
        evidence=(Evidence(f"the first of them: {first}; batches of {samples} on each rank"),),
        fixes=(
            Fix(
                setting="BatchNorm",
                current="of each rank's own batch",
                suggested="SyncBatchNorm, or GroupNorm",
                patch="model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # before wrapping it",
                why=f"statistics are then of {samples * world_size} samples; it costs one small collective per layer",
                source="Wu 2018",
            ),
        ),
    )


CHECK = Check(TRAINING_BATCH_NORM, "BatchNorm of a small batch per rank", detect)
