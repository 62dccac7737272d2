"""Buffers (running statistics of BatchNorm, say) drift apart because nothing synchronizes them.

What it detects: after a trace window buffers differ between ranks of a model. Either DistributedDataParallel was told
not to broadcast its buffers, or the script sums its gradients over all ranks itself.
Why it matters: it may be meant so. But an evaluation or checkpoint of one rank uses that rank's statistics, taken from
its share of the data; after a restart from it every rank goes on with them.
How to fix: `broadcast_buffers=True`, SyncBatchNorm, or averaging the buffers before evaluating and saving.
Limits: as training.replicas_differ. With `broadcast_buffers=True` buffers that a forward changes differ until the next
forward: nothing is said then.
Sources: DistributedDataParallel documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.training.copies import DDP, MODULE, Copies, at_line, copies, named, sums_every_gradient
from ddprof.finding_ids import TRAINING_BUFFERS_DIFFER
from ddprof.findings import Check, Evidence, Fix, Remark
from ddprof.units import format_count


def detect(job: JobFacts) -> Iterator[Remark]:
    """Models whose buffers nothing keeps equal."""
    for group in copies(job, DDP, buffers=True):
        if group.one.broadcast_buffers is False:
            yield from _differing(group, "broadcast_buffers=False")
    for group in copies(job, MODULE, buffers=True):
        if group.differing(buffers=True) and sums_every_gradient(job):
            yield from _differing(group, "nothing broadcasts them")


def _differing(group: Copies, why: str) -> Iterator[Remark]:
    places = group.differing(buffers=True)
    if not places:
        return
    name = group.one.name or "the model"
    yield Remark(
        id=CHECK.id,
        summary=f"{format_count(len(places), 'buffer')} of {name} differ between ranks ({why}): what one rank "
        "evaluates or saves holds the statistics of its share of the data",
        severity="warning",
        evidence=(
            Evidence(f"after step {group.step}: {named([group.one.names[at] for at in places])} differ"),
            *at_line("wrapped", group.one.line),
        ),
        fixes=(
            Fix(
                setting="buffers",
                current=why,
                suggested="broadcast_buffers=True, SyncBatchNorm, or an average before evaluating and saving",
                patch="model = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model))",
                why="all ranks then evaluate and save the same statistics",
                source="DistributedDataParallel documentation",
            ),
        ),
    )


CHECK = Check(TRAINING_BUFFERS_DIFFER, "Buffers drift apart between ranks", detect)
