"""Many small collectives pay latency.

What it detects: exposed collectives whose time is mostly per-call latency, read off the trace's own size -> time
points.
Why it costs: K calls pay K latencies, whatever their size.
How the gain is priced: the run is replayed with consecutive calls gathered into DDP's default 25 MiB: one latency per
bucket.
How to fix: a larger bucket_cap_mb.
Limits: gradients only; small messages of tensor or expert parallel ranks depend on one another and cannot be merged.
With a single message size latency and bandwidth cannot be separated; then only very slow small messages count.
Sources: PyTorch DDP (VLDB'20) section 5 on bucket size.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.gradients import DEFAULT_BUCKET_MIB
from ddprof.analyzers.job.traffic.statistics import Traffic
from ddprof.analyzers.rules.evidence.examples import exposed_transfer
from ddprof.analyzers.rules.evidence.exposures import of_reason
from ddprof.analyzers.rules.evidence.present import is_new
from ddprof.analyzers.rules.evidence.settings import text
from ddprof.findings import Candidate, Change, Evidence, Fix, Rule
from ddprof.units import MIB, format_bytes, format_share, format_us


def detect(measures: Measures) -> Iterator[Candidate]:
    """Exposed, small, latency-dominated collectives."""
    for exposure in of_reason(measures, "latency"):
        traffic, share = exposure.traffic, exposure.latency_share
        known = np.isfinite(share)
        detail = f", {format_share(share)} of it latency" if known else ""
        yield Candidate(
            id=RULE.id,
            summary=f"{traffic.count:.0f} small {traffic.op} calls per step ({_each(traffic)}) pay latency",
            ranks=(),
            lost_us=traffic.exposed_us,
            changes=(Change("merge_buckets", (), (DEFAULT_BUCKET_MIB * MIB,), traffic.role),),
            confidence=0.9 if known else 0.6,
            evidence=(
                Evidence(f"{format_us(traffic.transfer_us)} of transfer per step{detail}"),
                *exposed_transfer(measures, traffic),
            ),
            fixes=(_fix(measures),),
            band=0.2 if known else 0.35,
        )


def _fix(measures: Measures) -> Fix:
    buckets = Fix(
        setting="bucket_cap_mb",
        current=text(measures.settings.ddp.bucket_cap_mb),
        suggested="25",
        patch="DistributedDataParallel(model, bucket_cap_mb=25)",
        why="fewer, larger collectives pay the latency fewer times",
        source="PyTorch DDP (VLDB'20); torch.nn.parallel.DistributedDataParallel documentation",
    )
    if is_new(buckets):
        return buckets
    return Fix(
        setting="collectives beside DDP's buckets",
        suggested="one for many tensors: flattened, or issued together",
        patch="flat = torch.cat([t.flatten() for t in tensors])\ndist.all_reduce(flat)  # one latency for all",
        why=f"buckets hold {buckets.suggested} MiB already, so these calls are not DDP's",
        source="PyTorch DDP (VLDB'20) section 5 on bucket size",
    )


def _each(traffic: Traffic) -> str:
    return f"{format_bytes(traffic.mean_bytes)} each" if traffic.total_bytes else "sizes not recorded"


RULE = Rule(
    "comm.latency_bound", "Many small collectives pay latency", detect, bound="communication", reads_traffic=True
)
