"""What a change gains by the arithmetic of ledger and blame alone: a second price, made without the replay.

A rank's step holds, booked to the causes of the ledger, the time that a change removes, and the waiting that is charged
to ranks which the change brings to time. Ranks that meet in every step gain alike, so the mean over the ranks is the
price and the rank that gains most bounds it: more than is booked anywhere cannot be won. What a host gains by running
further ahead afterwards, and what stays because something else holds the device, only the replay can see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import Phase, RankFacts, Work
from ddprof.analyzers.facts.work import launched_in
from ddprof.analyzers.job.after_calls import idle_from_calls_us
from ddprof.analyzers.job.charged import waited_for_part_us, waited_us
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.needless.cost import needless_us
from ddprof.analyzers.job.script.hooks import held_by_hooks_us
from ddprof.analyzers.job.traffic.cost import fit_cost
from ddprof.analyzers.job.waiting.meetings import held_in_meetings_us
from ddprof.analyzers.replay.changes.kernels import PINNED_SHARE
from ddprof.causes import HOST_CAUSES
from ddprof.findings import Change, Recoverable
from ddprof.tables import Array

COMMUNICATION = ("comm_transfer", "comm_wait", "pipeline_bubble")
SHARDED = "fsdp_shard"  # role of the groups that hold a shard of the parameters each

Own = Callable[[Measures, Change], Array]


@dataclass(frozen=True)
class _Row:
    """How a kind of change is priced. `own`: us per step that it removes on each rank, were it of all ranks.

    `causes`: of the waiting charged to the ranks of the change, what they were late for; () for all of it, None for
    changes that leave the lateness of ranks as it is; `is_of_target`: the cause is the change's target instead. `most`:
    what it removes at most, where that is more than `own`.
    """

    own: Own
    causes: tuple[str, ...] | None = None
    is_of_target: bool = False
    most: Own | None = None


@dataclass(frozen=True)
class LedgerPrice:
    """Gain in us per step: mean over the ranks, and that of the rank that gains most.

    `sees_more`: the replay cannot see the gain, as what waits for ranks without a trace stays where it was.
    """

    value: float
    most: float
    sees_more: bool = False

    def as_range(self) -> Recoverable:
        """As a gain with its range: the ledger knows none below the mean."""
        return Recoverable(self.value, self.value, self.most)

    def widened(self, gain: Recoverable) -> Recoverable:
        """The range of a replayed gain, made to reach this price where the two disagree."""
        if self.sees_more and self.value > gain.value:
            return Recoverable(self.value, gain.low, max(gain.high, self.most))
        low, high = min(gain.low, self.most), max(gain.high, self.value)
        return Recoverable(gain.value, low, high)

    def agrees(self, gain: Recoverable) -> bool:
        """Whether the range of a replayed gain meets this price."""
        return gain.low <= self.most and self.value <= gain.high


def ledger_price(measures: Measures, changes: Sequence[Change]) -> LedgerPrice | None:
    """The second price of changes; None where their gain is no matter of what is booked (formulas, rates)."""
    if not changes or any(change.kind not in _ROWS for change in changes):
        return None
    gain = sum((_gain_us(measures, change) for change in changes), np.zeros((2, len(measures.job.ranks))))
    gain = np.minimum(gain, measures.step_us)
    held = bool(measures.job.missing_ranks) and any(change.kind in _HELD_BY_THE_UNTRACED for change in changes)
    return LedgerPrice(float(gain[0].mean()), float(gain.max()), held)


def _gain_us(measures: Measures, change: Change) -> Array:
    """What is removed and what is at most, us per step and rank, shape (2, ranks)."""
    row, positions = _ROWS[change.kind], _positions(measures, change)
    gain = np.zeros((2, len(measures.job.ranks)))
    for line, own in zip(gain, (row.own, row.most or row.own), strict=True):
        line[positions] = own(measures, change)[positions]
    causes = (change.target,) if row.is_of_target else row.causes
    return gain if causes is None else gain + waited_us(measures, causes, positions)


def _positions(measures: Measures, change: Change) -> Array:
    named = np.flatnonzero(np.isin(measures.job.rank_ids, change.ranks))
    return named if change.ranks else np.arange(len(measures.job.ranks))


def _per_rank(measures: Measures, of_rank: Callable[[RankFacts], intervals.Intervals]) -> Array:
    """Length of some intervals of each rank inside its steps, us per step."""
    lengths = [
        intervals.overlap(of_rank(facts), *facts.steps.bounds).sum() / len(facts.steps) / 1e3 if len(facts.steps) else 0
        for facts in measures.job.ranks
    ]
    return np.array(lengths, float)


def _excess(measures: Measures, change: Change) -> Array:
    """Share of its time by which each rank of the change is slower, zero for the others."""
    share = np.zeros(len(measures.job.ranks))
    share[_positions(measures, change)] = 1 - 1 / np.array(change.values)
    return share


def _booked_to_target(measures: Measures, change: Change) -> Array:
    """The ledger's time of the cause, and exposed copies launched in its spans."""

    def copies(facts: RankFacts) -> intervals.Intervals:
        ops = facts.device_ops
        spans = intervals.union(*facts.spans_of(change.target).bounds)
        mine = (ops["work"] == Work.COPY) & intervals.contains(spans, ops["launch_ns"])
        held = intervals.union(*ops.take(np.flatnonzero(mine)).bounds)
        return intervals.intersect(held, facts.gaps_of("memcpy").bounds)

    return measures.cause_us(change.target) + _per_rank(measures, copies)


def _slower_compute(measures: Measures, change: Change) -> Array:
    return np.asarray(_excess(measures, change) * measures.cause_us("compute"))


def _slower_host(measures: Measures, change: Change) -> Array:
    idle = sum((measures.cause_us(cause) for cause in HOST_CAUSES), np.zeros(len(measures.job.ranks)))
    return np.asarray(_excess(measures, change) * idle)


def _nothing(measures: Measures, _: Change) -> Array:
    return np.zeros(len(measures.job.ranks))


def _starved(part_us: Callable[[Measures], Array]) -> Own:
    """Idle time before launches for one reason, and the waiting for ranks that were late for it."""

    def own(measures: Measures, change: Change) -> Array:
        part = part_us(measures)
        return np.asarray(part + waited_for_part_us(measures, part, _positions(measures, change)))

    return own


def _less_script(measures: Measures, change: Change) -> Array:
    """Waiting for Python of the script, and for ranks that were late by it, but for what is left of it."""
    left = change.values[0] if change.values else 0.0
    return (1 - left) * _starved(lambda every: every.script_us)(measures, change)


def _faster_kernels(measures: Measures, change: Change) -> Array:
    """Kernels of the target at another speed; the optimizer's with the gaps before them, which their host leaves."""
    left = change.values[0]
    if change.target != "optimizer":
        return np.asarray(measures.fp32_gemm_us * (1 - left))

    def gaps(facts: RankFacts) -> intervals.Intervals:
        idle = facts.gaps_of("host_launch")
        idle = idle.take(np.flatnonzero(idle["next_op"] >= 0))
        before = launched_in(facts, Phase.OPTIMIZER)[idle["next_op"]] if len(idle) else np.zeros(0, bool)
        return intervals.union(*idle.take(np.flatnonzero(before)).bounds)

    host_left = change.values[1] if len(change.values) > 1 else 1.0
    return np.asarray(measures.optimizer_us * (1 - left) + _per_rank(measures, gaps) * (1 - host_left))


def _exposed_us(measures: Measures, role: str) -> float:
    return sum(t.exposed_us for t in measures.comm.traffic if not role or t.role == role)


def _faster_transfers(measures: Measures, change: Change) -> Array:
    """The exposed part of the transfers, which shrinks as they do."""
    left = change.values[0] if change.values else 0.0
    return np.full(len(measures.job.ranks), (1 - left) * _exposed_us(measures, change.target))


def _exposed_first(measures: Measures, change: Change) -> Array:
    """All that the transfers lose, as far as it was exposed."""
    left = change.values[0] if change.values else 0.0
    of_role = [t for t in measures.comm.traffic if not change.target or t.role == change.target]
    lost = sum(min(t.exposed_us, (1 - left) * t.transfer_us) for t in of_role)
    return np.full(len(measures.job.ranks), lost)


def _fewer_messages(measures: Measures, change: Change) -> Array:
    """The latency of messages that are merged into larger ones, of what is exposed."""
    saved = 0.0
    for traffic in measures.comm.traffic:
        model = fit_cost(traffic.sizes_bytes, traffic.times_us * 1e3)
        if traffic.role != change.target or not traffic.count:
            continue
        kept = max(1.0, traffic.total_bytes / change.values[0]) / traffic.count
        latency_us = traffic.exposed_us if model is None else traffic.count * model.alpha_ns / 1e3
        saved += min(traffic.exposed_us, latency_us * max(0.0, 1 - kept))
    return np.full(len(measures.job.ranks), saved)


def _overlapped(measures: Measures, change: Change) -> Array:
    """Exposed transfers but for a last bucket of `values[0]` bytes."""
    hidden = 0.0
    for traffic in measures.comm.traffic:
        if traffic.role == change.target and traffic.total_bytes:
            hidden += traffic.exposed_us * (1 - min(1.0, change.values[0] / traffic.total_bytes))
        elif traffic.role == change.target:
            hidden += traffic.exposed_us
    return np.full(len(measures.job.ranks), hidden)


def _held_in_meetings(measures: Measures, _: Change) -> Array:
    return np.array([held_in_meetings_us(facts) for facts in measures.job.ranks])


def _needless_transfer(measures: Measures, change: Change) -> Array:
    """Exposed transfer of what could go, and when the host does nothing but call it."""
    return needless_us(measures.job, measures.needless.get(change.target), waits=False)


def _needless_held(measures: Measures, change: Change) -> Array:
    """All time in which it holds a rank: a rank that waits there for a late one may wait for it elsewhere as well."""
    return needless_us(measures.job, measures.needless.get(change.target), waits=True)


def _stage_excess_us(measures: Measures) -> float:
    """Work of the slowest stage above the mean stage's: all keep its pace."""
    pipeline = measures.job.pipeline
    if pipeline is None:
        return 0.0
    work = np.array([np.mean([measures.stage_work_us[p] for p in stage]) for stage in pipeline.stages])
    return float(work.max() - work.mean())


def _even_stages(measures: Measures, _: Change) -> Array:
    """The excess, but for one microbatch: that one passes all stages in turn, however they share the work."""
    microbatches = max(1, measures.job.pipeline.microbatches) if measures.job.pipeline else 1
    return np.full(len(measures.job.ranks), (1 - 1 / microbatches) * _stage_excess_us(measures))


def _even_stages_at_most(measures: Measures, _: Change) -> Array:
    return np.full(len(measures.job.ranks), _stage_excess_us(measures))


def _all_exposed(role: str = "") -> Own:
    """All exposed transfers of a role, whatever a change does to them."""
    return lambda measures, _: np.full(len(measures.job.ranks), _exposed_us(measures, role))


def _all_communication(measures: Measures, _: Change) -> Array:
    """Exposed communication of every kind, waiting included: who is faster lets others wait less."""
    return sum((measures.cause_us(cause) for cause in COMMUNICATION), np.zeros(len(measures.job.ranks)))


def _waits_for_others(measures: Measures, _: Change) -> Array:
    return measures.cause_us("comm_wait")


_ROWS = {
    "remove_host": _Row(_booked_to_target, is_of_target=True),
    "instant_loader": _Row(lambda measures, _: measures.cause_us("dataloader"), ("dataloader",)),
    "no_sync": _Row(
        lambda measures, _: measures.cause_us("host_sync"),
        ("host_sync",),
        most=lambda measures, _: np.array([idle_from_calls_us(facts) for facts in measures.job.ranks]),
    ),
    "no_script": _Row(_less_script),
    "no_hook": _Row(lambda measures, _: np.array([held_by_hooks_us(facts) for facts in measures.job.ranks])),
    "no_stalls": _Row(_starved(lambda measures: measures.stalled_us)),
    "graph_launch": _Row(_starved(lambda measures: measures.launching_us)),
    "on_time": _Row(_nothing, ()),
    "level_compute": _Row(_nothing, ()),
    "balance_compute": _Row(_waits_for_others),
    "scale_compute": _Row(_slower_compute, ()),
    "scale_host": _Row(_slower_host, ()),
    "balance_stages": _Row(_even_stages, most=_even_stages_at_most),
    "hide_copies": _Row(
        lambda measures, _: (1 - PINNED_SHARE) * measures.pageable_us,
        ("memcpy",),
        most=lambda measures, _: measures.pageable_us,
    ),
    "scale_kernels": _Row(_faster_kernels),
    "scale_transfer": _Row(_faster_transfers, most=_exposed_first),
    "drop_meetings": _Row(_held_in_meetings),
    "drop_needless": _Row(_needless_transfer, most=_needless_held),
    "merge_buckets": _Row(_fewer_messages),
    "overlap": _Row(_overlapped),
    # Of these the ledger knows only a bound.
    "merge_units": _Row(_nothing, most=_all_exposed(SHARDED)),
    "prefetch_gathers": _Row(_nothing, most=_all_exposed(SHARDED)),
    "keep_parameters": _Row(_nothing, most=_all_exposed(SHARDED)),
    "speed_groups": _Row(_nothing, most=_all_communication),
    "speed_links": _Row(_nothing, most=_all_communication),
}
# Every microbatch passes all stages: where a replica's messages have no other end in the data, they do not move.
_HELD_BY_THE_UNTRACED = ("balance_stages",)
