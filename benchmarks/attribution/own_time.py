"""Each rank's own time per step by cause, and what is known of why one computes longer.

Own time is all that a rank spends but meeting its peers. Unlike blame it is not censored: of two ranks that are equally
late only the last one is charged with waiting, both show in their own time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof import averages
from ddprof.analyzers.facts.model import RankFacts, Work
from ddprof.analyzers.facts.work import step_of_launch
from ddprof.analyzers.job.input_size import fed_ratio
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.peers.kernels import compared, kernels_by_place
from ddprof.analyzers.job.slowdown import peers
from ddprof.causes import CAUSE_CODE, CAUSE_IDS
from ddprof.tables import Array

MEETING = ("comm_wait", "comm_transfer", "pipeline_bubble")
EXTRA = "extra"  # the column of a step's compute that runs more kernels than the typical rank does
# Launches of a step over the typical rank's. Ranks of one program launch equally many; unequal batches of one length
# class differ by 1 to 2 % of theirs (generated runs, 2026-11-24).
MORE_KERNELS = 1.05
# Ranks whose hosts wait for one another leave no event in a blocking call: where less than the first share of a step is
# waiting that was recorded, and blocking differs between ranks by the second, the blocking is waiting.
NO_WAITS_SHARE, BLOCKED_SHARE = 0.01, 0.03


@dataclass(frozen=True)
class OwnTime:
    """Input of attribution for a job; ratios are over the typical rank's less 1, NaN where not known.

    `met_us`: waiting for others, their transfers and blocking calls, mean per step of each rank.
    """

    causes: tuple[str, ...]
    us: Array  # (causes, ranks, steps)
    step_us: float
    met_us: Array  # (ranks,)
    pace: Array  # (ranks,), what paired kernels take
    stage_pace: Array  # (ranks,), the same against other stages of a pipeline
    fed: Array  # (ranks,), bytes or elements of batches
    more: Array  # (ranks,), share of compute in launches that the peers lack
    hot: tuple[int, ...]  # positions whose experts or tables are asked for more
    alone: tuple[int, ...]  # positions that run lines of the script which their peers do not
    stages: tuple[tuple[int, ...], ...]  # of a pipeline, positions; () without one
    hosts: tuple[tuple[int, ...], ...]  # positions by host
    rank_ids: tuple[int, ...]
    on_device: bool

    @property
    def total_us(self) -> Array:
        """All own time, us, shape (ranks, steps)."""
        return np.asarray(self.us.sum(axis=0))

    def level(self, cause: str) -> Array:
        """Median over the ranks in each step, as a share of the step; shape (steps,)."""
        return np.asarray(np.median(self.us[self.causes.index(cause)], axis=0) / self.step_us)

    def typical(self, cause: str) -> Array:
        """Time of the typical rank in each step, as a share of the step; shape (steps,)."""
        return averages.typical_row(self.us[self.causes.index(cause)]) / self.step_us

    def excess(self, cause: str) -> Array:
        """Time beyond the typical rank's in the same step, as a share of the step; shape (ranks, steps)."""
        return np.asarray(self.us[self.causes.index(cause)] / self.step_us - self.typical(cause))


def own_time(measures: Measures) -> OwnTime:
    """Own time of the job's ranks in the steps that all have."""
    job = measures.job
    steps = min(len(facts.steps) for facts in job.ranks)
    booked = np.zeros((len(CAUSE_IDS), len(job.ranks), steps))
    mine = job.ledger["step"] < steps
    at = tuple(job.ledger[name][mine] for name in ("cause", "rank", "step"))
    np.add.at(booked, at, job.ledger["dur_ns"][mine] / 1e3)
    met_us = sum(booked[CAUSE_CODE[cause]].mean(axis=1) for cause in MEETING)
    step_us = max(measures.step_us, 1e-9)
    causes = [cause for cause in CAUSE_IDS if cause not in MEETING]
    sync = booked[CAUSE_CODE["host_sync"]].mean(axis=1)
    if met_us.mean() < NO_WAITS_SHARE * step_us and np.ptp(sync) > BLOCKED_SHARE * step_us:
        causes.remove("host_sync")
    columns = {cause: booked[CAUSE_CODE[cause]] for cause in causes}
    columns[EXTRA] = _extra(measures, columns["compute"])
    columns["compute"] = columns["compute"] - columns[EXTRA]
    hosts: dict[str, list[int]] = {}
    for position, facts in enumerate(job.ranks):
        hosts.setdefault(facts.identity.host or f"of rank {position}", []).append(position)
    return OwnTime(
        causes=tuple(columns),
        us=np.array([*columns.values()]),
        step_us=step_us,
        met_us=met_us + sync,
        pace=_pace(measures, steps),
        stage_pace=measures.pace.factor - 1.0,
        fed=fed_ratio(job.ranks) - 1.0,
        more=measures.compute.more_work,
        hot=tuple(shard.position for shard in measures.hot),
        alone=tuple(measures.alone),
        stages=job.pipeline.stages if job.pipeline is not None else (),
        hosts=tuple(map(tuple, hosts.values())),
        rank_ids=job.rank_ids,
        on_device=job.on_device,
    )


def _extra(measures: Measures, compute: Array) -> Array:
    """Compute of a rank beyond the typical rank's in steps in which it launches clearly more kernels; us, shape (ranks,
    steps).
    """
    ranks, steps = measures.job.ranks, compute.shape[1]
    launched = np.zeros(compute.shape)
    for row, facts in zip(launched, ranks, strict=True):
        step = step_of_launch(facts)
        row += np.bincount(step[_is_compute(facts) & (step >= 0) & (step < steps)], minlength=steps)
    extra = np.zeros(compute.shape)
    for group in peers(len(ranks), measures.job.pipeline):
        own, spent = launched[group], compute[group]
        more = own > MORE_KERNELS * averages.typical_row(own)
        extra[group] = np.where(more, np.maximum(0.0, spent - averages.typical_row(spent)), 0.0)
    return extra


def _is_compute(facts: RankFacts) -> Array:
    return np.asarray(facts.device_ops["work"] == Work.COMPUTE)


def _pace(measures: Measures, steps: int) -> Array:
    """Relative excess of the kernels that a rank has in common with its peers; on CPU ranks all operators. A device may
    be slow at some kernels alone, so their times are summed and no median is taken.
    """
    job = measures.job
    if not all(facts.is_device_rank for facts in job.ranks):
        return np.asarray(measures.compute.factor - 1.0)
    pace = np.full(len(job.ranks), np.nan)
    kernels = [kernels_by_place(facts, steps) for facts in job.ranks]
    for group in peers(len(job.ranks), job.pipeline):
        for position, found in zip(group, compared([kernels[p] for p in group], steps), strict=True):
            if found.expected_ns.any():
                pace[position] = found.took_ns.sum() / found.expected_ns[found.took_ns > 0].sum() - 1.0
    return pace
