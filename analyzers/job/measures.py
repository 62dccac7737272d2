"""Input of the rules: the job in a few small arrays, microseconds per step, indexed by rank position.

All of it is arithmetic on JobFacts, without thresholds and verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.work import computed_in_steps, evaluating, launched_in
from ddprof.analyzers.job.copies import exposed_copies, pageable_copies
from ddprof.analyzers.job.device_idle import starved
from ddprof.analyzers.job.input_size import fed_more_us
from ddprof.analyzers.job.model import JobFacts
from ddprof.analyzers.job.peers.cpu_stops import CpuStops, cpu_stops
from ddprof.analyzers.job.peers.hot_shards import HotShard, hot_shards
from ddprof.analyzers.job.pipelines.bubble import stage_pace, stage_work_ns
from ddprof.analyzers.job.redundant.find import find_needless
from ddprof.analyzers.job.script.alone import Alone, all_lateness_us, alone_by_rank
from ddprof.analyzers.job.script.idle import ScriptTime, script_times
from ddprof.analyzers.job.slowdown import Slowdown, compute_slowdown, host_slowdown, work_slowdown
from ddprof.analyzers.job.traffic.kinds import Needless
from ddprof.analyzers.job.traffic.statistics import CommStats, comm_stats
from ddprof.analyzers.job.waiting.lateness import beyond_schedule
from ddprof.analyzers.job.whole_run.own_times import late_loading_shares, late_shares
from ddprof.causes import CAUSE_CODE, CAUSES, SPAN_CAUSES
from ddprof.sidecar import Sidecar
from ddprof.tables import Array
from ddprof.units import format_ranks
from ddprof.whose import whose

# What recording an operator costs the host in PyTorch before 1.12, whose categories have capitals (pytorch#82793: 4 us
# on CUDA). What newer ones cost is not known well enough: 1.2 to 3.7 us on CPU ranks (torch 2.13, 2026-11-24).
RECORDING_US, OLD_CATEGORY = 4.0, "Operator"
FEWEST_STEPS = 3  # of two unlike steps neither is the usual one
MEETING = ("comm_wait", "comm_transfer", "pipeline_bubble")  # causes that are no rank's own


@dataclass(frozen=True)
class Measures:
    """Measures of the job that rules read."""

    job: JobFacts
    step_us: float
    steps: int
    ledger_us: Array  # (ranks, causes), mean per step
    compute: Slowdown
    pace: Slowdown  # of the ranks of a pipeline against those of all its stages
    work: Slowdown
    host: Slowdown
    comm: CommStats
    host_spans_us: Mapping[str, Array]  # cause -> (ranks,), in its host spans per step, whether or not the device idles
    evaluating_us: Array  # (ranks,), with a model in evaluation mode, as captured: a part of "checkpoint"
    host_counts: Mapping[str, Array]  # cause -> (ranks,), host spans per step
    # Idle per step before launches not yet made, by reason (job/device_idle.py), each (ranks,): the cost of
    # launching, stops inside any call, what else held the host for long, Python of the script between the phases
    # (job/script, where frames were recorded). Together: host_launch less gaps of queued kernels; on CPU ranks
    # `script_us` alone, with the operators that such Python calls.
    launching_us: Array
    stalled_us: Array
    held_us: Array
    script_us: Array
    script: tuple[ScriptTime, ...]  # by position: when, and in which stacks
    launch_interval_us: Array  # (ranks,), usual time between two launches
    longest_fetch_us: Array  # (ranks,), the longest time in the loader inside a step
    optimizer_kernels: Array  # (ranks,), kernels launched in optimizer ranges per step
    optimizer_us: Array  # (ranks,), their time
    pageable_us: Array  # (ranks,), exposed copies through pageable host memory per step, both ways
    gemm_us: Array  # (ranks,)
    fp32_gemm_us: Array  # (ranks,)
    kernels_per_step: Array  # (ranks,)
    stage_work_us: Array  # (ranks,), forward + backward compute per step
    hot: tuple[HotShard, ...]  # ranks whose experts or embedding tables are asked for more than their peers
    alone: Mapping[int, Alone]  # by position: what makes a rank late and its peers do not run, where frames show it
    late_us: Array  # (ranks,), how long the others wait for it: as blamed, or by clear timers of the whole run
    timed_us: Array  # (ranks,), by these timers of the run alone, in proportion to the step; 0: not clear
    fed_more_us: Array  # (ranks,), of CPU ranks that compute longer as they are fed more in every step; 0: not clear
    loading_late_us: Array  # (ranks,), waits for batches beyond the typical rank's, by the timers; 0: not clear
    needless: Mapping[str, Needless]  # by kind: communication that could go (job/redundant)
    cpu_stops: CpuStops | None  # of CPU ranks
    settings: Sidecar  # of the lowest captured rank, empty if there is none

    def cause_us(self, cause: str) -> Array:
        """Ledger time of one cause per rank, us per step, shape (ranks,)."""
        return np.asarray(self.ledger_us[:, CAUSE_CODE[cause]])

    @property
    def recording_us(self) -> Array:
        """Host time that recording operators with an old profiler costs each rank, us per step, shape (ranks,)."""
        old = [OLD_CATEGORY in facts.top.get("categories", {}) for facts in self.job.ranks]
        operators = [facts.counts.get("operators_per_step", 0) for facts in self.job.ranks]
        return np.where(old, RECORDING_US * np.array(operators, float), 0.0)

    @property
    def unrecorded_launching_us(self) -> Array:
        """Cost of launching on each rank where nothing is recorded, us per step, shape (ranks,)."""
        return np.asarray(np.maximum(0.0, self.launching_us - self.recording_us))

    @property
    def own_us(self) -> Array:
        """Time of each rank on its own work, loading included, us per step, shape (ranks,): the ledger without
        communication and waits for other stages. The others wait for the rank with the longest.
        """
        return np.asarray(self.ledger_us.sum(axis=1) - sum(self.cause_us(cause) for cause in MEETING))

    def theirs(self, times: Array | Sequence[float]) -> tuple[int, ...]:
        """Numbers of the few ranks that alone have a time (of each rank), whom a finding on it names; () where the
        whole job has it. Every rule asks here first.
        """
        return self.ranks(whose(times))

    def with_any(self, times: Array) -> tuple[int, ...]:
        """Numbers of the ranks that a finding on a mode names, which some ranks are in and others need not be: those
        with a time (of each rank) at all; () where it is all of them.
        """
        some = np.flatnonzero(times)
        return self.theirs(times) or (self.ranks(some) if len(some) < len(times) else ())

    def ranks(self, positions: Array | list[int]) -> tuple[int, ...]:
        """Numbers of the ranks at these positions."""
        return tuple(self.job.rank_ids[int(p)] for p in positions)

    def whom(self, numbers: tuple[int, ...]) -> str:
        """Ranks in words; () reads "all ranks", or the only traced one."""
        return format_ranks(numbers or (self.job.rank_ids if len(self.job.rank_ids) == 1 else ()))


def measure(job: JobFacts) -> Measures:
    """All measures of a job with at least one step."""
    ranks = job.ranks
    needless = find_needless(job)
    steps = np.array([len(f.steps) for f in ranks])
    ledger = np.zeros((len(ranks), len(CAUSES)))
    np.add.at(ledger, (job.ledger["rank"], job.ledger["cause"]), job.ledger["dur_ns"])
    spans = {c: np.array([f.host_us(intervals.union(*f.spans_of(c).bounds)) for f in ranks]) for c in SPAN_CAUSES}
    counts = {c: np.array([_span_count(f, c) for f in ranks]) for c in spans}
    hungry = [starved(f) for f in ranks]
    script = script_times(ranks)
    together = list(zip(ranks, hungry, script, strict=True))
    optimizer = np.array([_optimizer(f) for f in ranks])
    gemm = np.array([_gemm(f) for f in ranks])
    timed_us, own_us = (share * job.step_ns / 1e3 for share in late_shares(ranks))
    late_for = job.blame.take(beyond_schedule(job))
    host = host_slowdown(ranks, job.pipeline)
    longer_us = host.time_us - averages.typical(host.time_us)
    return Measures(
        job=job,
        step_us=job.step_ns / 1e3,
        steps=int(steps.min()),
        ledger_us=ledger / steps[:, None] / 1e3,
        compute=compute_slowdown(ranks, job.pipeline),
        pace=stage_pace(ranks, job.pipeline),
        work=work_slowdown(ranks, job.pipeline),
        host=host,
        comm=comm_stats(job, needless),
        host_spans_us=spans,
        evaluating_us=np.array([f.host_us(evaluating(f)) for f in ranks]),
        host_counts=counts,
        launching_us=np.array([_recurring_us(f, intervals.subtract(s.launching, t.idle)) for f, s, t in together]),
        stalled_us=np.array([f.per_step_us(s.stalled) for f, s, _ in together]),
        held_us=np.array([f.per_step_us(intervals.subtract(s.held, t.idle)) for f, s, t in together]),
        script_us=np.array([t.share * f.per_step_us(t.idle) for f, _, t in together]),
        script=tuple(script),
        launch_interval_us=np.array([s.interval_ns / 1e3 for s in hungry]),
        longest_fetch_us=np.array([_longest_fetch_us(f) for f in ranks]),
        optimizer_kernels=optimizer[:, 0],
        optimizer_us=optimizer[:, 1],
        pageable_us=np.array([_pageable_us(f) for f in ranks]),
        gemm_us=gemm[:, 0],
        fp32_gemm_us=gemm[:, 1],
        kernels_per_step=np.array([len(computed_in_steps(f)[0]) for f in ranks]) / steps,
        stage_work_us=np.array([stage_work_ns(f) for f in ranks]) / 1e3,
        hot=hot_shards(ranks),
        alone=alone_by_rank(ranks, late_for, job.step_ns / 1e3, (timed_us, own_us), longer_us),
        late_us=np.maximum(all_lateness_us(ranks, late_for), timed_us),
        loading_late_us=late_loading_shares(ranks) * job.step_ns / 1e3,
        timed_us=timed_us,
        fed_more_us=fed_more_us(ranks, job.step_ns / 1e3),
        needless=needless,
        cpu_stops=cpu_stops(job.ranks),
        settings=next((f.sidecar for f in ranks if f.sidecar.is_captured), Sidecar()),
    )


def _recurring_us(facts: RankFacts, spans: intervals.Intervals) -> float:
    """Time on the device, inside the steps, without what one of three or more steps alone has: that need not recur."""
    each = intervals.overlap(spans, *facts.steps.bounds)
    if len(each) >= FEWEST_STEPS:
        each = np.minimum(each, np.sort(each)[-2])
    return float(each.mean()) / 1e3


def _longest_fetch_us(facts: RankFacts) -> float:
    start, end = intervals.union(*facts.spans_of("dataloader").bounds)
    length = end - start
    return float(length.max()) / 1e3 if len(length) else 0.0


def _span_count(facts: RankFacts, cause: str) -> float:
    """Spans per step; one that encloses another of its cause, as our range does torch's, counts once."""
    spans = facts.spans_of(cause)
    inside = facts.is_issued_in_steps(intervals.union(spans["start_ns"], spans["end_ns"])[0])
    return float(inside.sum()) / len(facts.steps)


def _optimizer(facts: RankFacts) -> tuple[float, float]:
    """Kernels launched in optimizer ranges per step, and their time, us."""
    rows, _ = computed_in_steps(facts)
    rows = rows[launched_in(facts, Phase.OPTIMIZER)[rows]]
    total = (facts.device_ops["end_ns"] - facts.device_ops["start_ns"])[rows].sum()
    return len(rows) / len(facts.steps), float(total) / len(facts.steps) / 1e3


def _pageable_us(facts: RankFacts) -> float:
    pageable = pageable_copies(facts)
    return facts.per_step_us(exposed_copies(facts, pageable)) if pageable.any() else 0.0


def _gemm(facts: RankFacts) -> tuple[float, float]:
    """Time per step in matrix kernels, and the part on single-precision operands."""
    groups = facts.kernel_groups
    total, fp32 = (float(groups["total_ns"][groups[of].astype(bool)].sum()) for of in ("is_gemm", "is_fp32"))
    return total / len(facts.steps) / 1e3, fp32 / len(facts.steps) / 1e3
