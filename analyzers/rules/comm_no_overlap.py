"""Large collectives start after the compute that could hide them.

What it detects: gradient all-reduces that compute hides next to nothing of, although the backward pass is long enough.
Why it costs: the whole transfer is added to the step.
How the gain is priced: the run is replayed with the transfer hidden behind the backward pass, except for what exceeds
it and a last bucket of 25 MiB.
How to fix: DDP's default buckets in place of one huge bucket or of a reduction after the backward pass; gradient hooks;
no static delay.
Limits: gradients that become ready only at the end (one huge layer) cannot be hidden.
Sources: PyTorch DDP (VLDB'20): overlap gained 38 % (ResNet) and 35 % (BERT) with NCCL.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.gradients import DEFAULT_BUCKET_MIB
from ddprof.analyzers.replay.changes.communication.overlap import FEWEST_TO_OVERLAP
from ddprof.analyzers.rules.evidence.examples import exposed_transfer
from ddprof.analyzers.rules.evidence.exposures import certainty, doubtful, of_reason
from ddprof.analyzers.rules.evidence.present import is_new
from ddprof.analyzers.rules.evidence.settings import text
from ddprof.findings import Abstention, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import MIB, format_bytes, format_share, format_us


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Exposed gradient traffic without overlap."""
    yield from doubtful(measures, RULE.id, "no_overlap")
    for exposure in of_reason(measures, "no_overlap"):
        traffic = exposure.traffic
        bucket = min(DEFAULT_BUCKET_MIB * MIB, (traffic.total_bytes or math.inf) / FEWEST_TO_OVERLAP)
        volume = f" of {format_bytes(traffic.total_bytes)}" if traffic.total_bytes else ""
        suggested = f"{max(1, round(bucket / MIB))}"
        yield Candidate(
            id=RULE.id,
            summary=f"{traffic.op}{volume} per step starts after the compute that could hide it",
            ranks=(),
            lost_us=traffic.exposed_us,
            changes=(Change("overlap", (), (bucket,), traffic.role),),
            confidence=0.85 * certainty(exposure),
            evidence=(
                Evidence(
                    f"{format_us(traffic.transfer_us)} of transfer per step, {format_share(traffic.hidden_share)} "
                    "beside compute"
                ),
                *exposed_transfer(measures, traffic),
            ),
            fixes=(_fix(measures, suggested),),
            band=0.25,
        )


def _fix(measures: Measures, suggested: str) -> Fix:
    buckets = Fix(
        setting="bucket_cap_mb",
        current=text(measures.settings.ddp.bucket_cap_mb),
        suggested=suggested,
        patch=f"DistributedDataParallel(model, bucket_cap_mb={suggested})",
        why="buckets are reduced as soon as their gradients exist, while backward goes on",
        source="PyTorch DDP (VLDB'20)",
    )
    if is_new(buckets):
        return buckets
    return Fix(
        setting="when gradients are reduced",
        suggested="during the backward pass, by DDP's hooks; no reduction by hand after it",
        patch="model = DistributedDataParallel(model)  # and no all_reduce of gradients after loss.backward()",
        why=f"buckets hold {suggested} MiB already, so their size does not delay the reduction",
        source="PyTorch DDP (VLDB'20)",
    )


RULE = Rule(
    "comm.no_overlap",
    "Communication starts too late to be hidden",
    detect,
    bound="communication",
    reads_traffic=True,
)
