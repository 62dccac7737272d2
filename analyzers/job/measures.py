"""What the rules read: the job in a few small arrays, microseconds per step, indexed by rank position.

All of it is arithmetic on JobFacts, without thresholds and verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import Phase, RankFacts, Work
from ddprof.analyzers.facts.work import issued_ns, launched_in
from ddprof.analyzers.job.copies import pageable_copies
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.pipeline import stage_work_ns
from ddprof.analyzers.job.slowdown import Slowdown, compute_slowdown, host_slowdown, work_slowdown
from ddprof.analyzers.job.starved import starved
from ddprof.analyzers.job.traffic.statistics import CommStats, comm_stats
from ddprof.causes import CAUSE_CODE, CAUSES, SPAN_CAUSES
from ddprof.sidecar import Sidecar
from ddprof.tables import Array


@dataclass(frozen=True)
class Measures:
    """The job as the rules see it."""

    job: JobFacts
    step_us: float
    steps: int
    ledger_us: Array  # (ranks, causes), mean per step
    compute: Slowdown
    work: Slowdown
    host: Slowdown
    comm: CommStats
    host_spans_us: Mapping[str, Array]  # cause -> (ranks,), in its host spans per step, whether or not the device idles
    host_counts: Mapping[str, Array]  # cause -> (ranks,), host spans per step
    # Idle per step before launches not yet made, by reason (job/starved.py), each (ranks,): the cost of launching,
    # stops inside any call, what else held the host for long. Together: host_launch less gaps of queued kernels.
    launching_us: Array
    stalled_us: Array
    held_us: Array
    launch_interval_us: Array  # (ranks,), usual time between two launches
    longest_fetch_us: Array  # (ranks,), the longest time in the loader inside a step
    optimizer_kernels: Array  # (ranks,), kernels launched in optimizer ranges per step
    optimizer_us: Array  # (ranks,), their time
    pageable_us: Array  # (ranks,), exposed host-device copies from pageable memory per step
    gemm_us: Array  # (ranks,)
    fp32_gemm_us: Array  # (ranks,)
    kernels_per_step: Array  # (ranks,)
    stage_work_us: Array  # (ranks,), forward + backward compute per step
    settings: Sidecar  # of the lowest captured rank, empty if there is none

    def cause_us(self, cause: str) -> Array:
        """Ledger time of one cause per rank, us per step, shape (ranks,)."""
        return np.asarray(self.ledger_us[:, CAUSE_CODE[cause]])

    def ranks(self, positions: Array | list[int]) -> tuple[int, ...]:
        """Rank numbers of positions."""
        return tuple(self.job.rank_ids[int(p)] for p in positions)


def measure(job: JobFacts) -> Measures:
    """All measures of a job with at least one step."""
    ranks = job.ranks
    steps = np.array([max(1, len(f.steps)) for f in ranks])
    ledger = np.zeros((len(ranks), len(CAUSES)))
    np.add.at(ledger, (job.ledger["rank"], job.ledger["cause"]), job.ledger["dur_ns"])
    spans = {c: np.array([_span_us(f, c) for f in ranks]) for c in SPAN_CAUSES}
    counts = {c: np.array([_span_count(f, c) for f in ranks]) for c in spans}
    hungry = [starved(f) for f in ranks]
    optimizer = np.array([_optimizer(f) for f in ranks])
    gemm = np.array([_gemm(f) for f in ranks])
    return Measures(
        job=job,
        step_us=job.step_ns / 1e3,
        steps=int(steps.min()),
        ledger_us=ledger / steps[:, None] / 1e3,
        compute=compute_slowdown(ranks, job.pipeline),
        work=work_slowdown(ranks, job.pipeline),
        host=host_slowdown(ranks, job.pipeline),
        comm=comm_stats(job),
        host_spans_us=spans,
        host_counts=counts,
        launching_us=np.array([_per_step_us(f, s.launching) for f, s in zip(ranks, hungry, strict=True)]),
        stalled_us=np.array([_per_step_us(f, s.stalled) for f, s in zip(ranks, hungry, strict=True)]),
        held_us=np.array([_per_step_us(f, s.held) for f, s in zip(ranks, hungry, strict=True)]),
        launch_interval_us=np.array([s.interval_ns / 1e3 for s in hungry]),
        longest_fetch_us=np.array([_longest_fetch_us(f) for f in ranks]),
        optimizer_kernels=optimizer[:, 0],
        optimizer_us=optimizer[:, 1],
        pageable_us=np.array([_pageable_us(f) for f in ranks]),
        gemm_us=gemm[:, 0],
        fp32_gemm_us=gemm[:, 1],
        kernels_per_step=np.array(
            [
                float((f.device_ops["work"][f.is_issued_in_steps(issued_ns(f.device_ops))] == Work.COMPUTE).sum())
                for f in ranks
            ]
        )
        / steps,
        stage_work_us=np.array([stage_work_ns(f) for f in ranks]) / 1e3,
        settings=next((f.sidecar for f in ranks if f.sidecar.is_captured), Sidecar()),
    )


def _per_step_us(facts: RankFacts, spans: intervals.Intervals) -> float:
    """Time on the device, inside the steps."""
    if not len(facts.steps):
        return 0.0
    return float(intervals.overlap(spans, *facts.steps.bounds).sum()) / len(facts.steps) / 1e3


def _span_us(facts: RankFacts, cause: str) -> float:
    if not len(facts.steps):
        return 0.0
    spans = intervals.union(*facts.spans_of(cause).bounds)
    return float(intervals.overlap(spans, *facts.marks).sum()) / len(facts.steps) / 1e3


def _longest_fetch_us(facts: RankFacts) -> float:
    start, end = intervals.union(*facts.spans_of("dataloader").bounds)
    length = end - start
    return float(length.max()) / 1e3 if len(length) else 0.0


def _span_count(facts: RankFacts, cause: str) -> float:
    if not len(facts.steps):
        return 0.0
    inside = facts.is_issued_in_steps(facts.spans_of(cause)["start_ns"])
    return float(inside.sum()) / len(facts.steps)


def _optimizer(facts: RankFacts) -> tuple[float, float]:
    ops = facts.device_ops
    if not len(ops) or not len(facts.steps):
        return 0.0, 0.0
    inside = launched_in(facts, Phase.OPTIMIZER) & (ops["work"] == Work.COMPUTE)
    inside &= facts.is_issued_in_steps(issued_ns(ops))
    total = (ops["end_ns"] - ops["start_ns"])[inside].sum()
    return inside.sum() / len(facts.steps), float(total) / len(facts.steps) / 1e3


def _pageable_us(facts: RankFacts) -> float:
    ops = facts.device_ops
    mine = pageable_copies(facts)
    if not mine.any():
        return 0.0
    copies = intervals.union(*ops.take(mine).bounds)
    return _per_step_us(facts, intervals.intersect(copies, facts.gaps_of("memcpy").bounds))


def _gemm(facts: RankFacts) -> tuple[float, float]:
    """Time per step in matrix kernels, and the part of it on single precision operands."""
    groups = facts.kernel_groups
    if not len(groups) or not len(facts.steps):
        return 0.0, 0.0
    total = groups["total_ns"][groups["is_gemm"].astype(bool)].sum() / len(facts.steps) / 1e3
    fp32 = groups["total_ns"][groups["is_fp32"].astype(bool)].sum() / len(facts.steps) / 1e3
    return float(total), float(fp32)
