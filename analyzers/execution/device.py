"""Ranks whose work runs on an accelerator, launched by their host."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ddprof.analyzers.execution.limits import Limits
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.slowdown import contention
from ddprof.analyzers.job.traffic.transfer_curve import LATENCY_BOUND_RATE, TransferPrior


class DeviceExecution:
    """Kernels and transfers run on streams; the host runs ahead."""

    limits = Limits(
        min_exposed_share=0.01,
        min_volume_share=0.0,
        min_volume_bytes=0,
        min_stage_excess=0.05,
        min_compute_excess=0.02,  # healthy ranks of one model differ by about 0.5 %
        sure_compute_excess=inf,
        explaining_compute_excess=inf,  # a slow device does not hold its host
        min_work_spread=0.03,
        min_host_excess=0.01,
        # NCCL's own base and hop latencies (tuning.cc) add up to 20 to 40 us in a node; a fast link's bus bandwidth.
        transfer_prior=TransferPrior(30_000.0, 100.0, LATENCY_BOUND_RATE),
        packing_ns_per_mib=2_000.0,  # at HBM rate: 2 x 1.5 MiB read and written at 1.5 TB/s
    )
    work_noun = "kernels"
    runs_ahead = True
    peers_by_kernel = True
    compression_hook = "bf16_compress_hook"  # needs NCCL
    loader_arguments = ", pin_memory=True"

    def interference(self, ranks: Sequence[RankFacts]) -> float:
        """Of kernels that ran both ways: communication kernels take SMs and bandwidth, even while they wait."""
        return contention(ranks)

    def sees_waits(self, job: JobFacts) -> bool:
        """Always: the device idles or runs a communication kernel."""
        return True
