"""Ledger price of a kind of change: the booked time that it removes on each rank."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import Phase, RankFacts, Work
from ddprof.analyzers.facts.work import launched_in
from ddprof.analyzers.job.charged import waited_for_part_us
from ddprof.analyzers.job.device_idle import idle_from_calls_us
from ddprof.analyzers.job.host_costs import part_us
from ddprof.analyzers.job.measures import MEETING, Measures
from ddprof.analyzers.job.redundant.find import needless_us
from ddprof.analyzers.job.traffic.cost import fit_cost
from ddprof.findings import Change
from ddprof.tables import Array

SHARDED = "fsdp_shard"  # role of the groups that hold a shard of the parameters each

Own = Callable[[Measures, Change], Array]


def nothing(measures: Measures, _: Change) -> Array:
    """Zero: no time is booked."""
    return np.zeros(len(measures.job.ranks))


class Booked(Struct, frozen=True):
    """Rule for pricing a kind of change by the ledger. `own`: us per step that it removes on each rank, if made on all.

    `causes`: causes of lateness whose charged waits disappear; () for all, None for changes that do not affect
    lateness; `is_of_target`: the change's target is the cause instead. `most`: upper limit, where larger than `own`.
    `is_held_by_untraced`: microbatches pass through untraced stages, which the replay does not move. `levels`: for
    named ranks, the causes of own time reduced to the typical rank's (() : all), which alone make the price.
    """

    own: Own = nothing
    causes: tuple[str, ...] | None = None
    is_of_target: bool = False
    most: Own | None = None
    is_held_by_untraced: bool = False
    levels: tuple[str, ...] | None = None


def positions(measures: Measures, change: Change) -> Array:
    """Positions of the ranks that a change names, of all where it names none."""
    named = np.flatnonzero(np.isin(measures.job.rank_ids, change.ranks))
    return named if change.ranks else np.arange(len(measures.job.ranks))


def _per_rank(measures: Measures, of_rank: Callable[[RankFacts], intervals.Intervals]) -> Array:
    """Length of some intervals of each rank inside its steps, us per step."""
    lengths = [
        intervals.overlap(of_rank(facts), *facts.steps.bounds).sum() / len(facts.steps) / 1e3
        for facts in measures.job.ranks
    ]
    return np.array(lengths, float)


def booked_to_target(measures: Measures, change: Change) -> Array:
    """The ledger's time of the cause, and exposed copies launched in its spans."""

    def copies(facts: RankFacts) -> intervals.Intervals:
        ops = facts.device_ops
        spans = intervals.union(*facts.spans_of(change.target).bounds)
        is_copy = (ops["work"] == Work.COPY) & intervals.contains(spans, ops["launch_ns"])
        held = intervals.union(*ops.bounds_of(np.flatnonzero(is_copy)))
        return intervals.intersect(held, facts.gaps_of("memcpy").bounds)

    return measures.cause_us(change.target) + _per_rank(measures, copies)


def starved(part_us: Callable[[Measures], Array]) -> Own:
    """Idle time before launches for one reason, and waiting for ranks that were late for that reason."""

    def removed(measures: Measures, change: Change) -> Array:
        part = part_us(measures)
        return np.asarray(part + waited_for_part_us(measures, part, positions(measures, change)))

    return removed


def less_script(measures: Measures, change: Change) -> Array:
    """Waits for script Python, and for ranks made late by it, minus the part that remains."""
    left = change.values[0] if change.values else 0.0
    return (1 - left) * starved(lambda every: every.script_us)(measures, change)


def less_of_part(measures: Measures, change: Change) -> Array:
    """The time in a part of each rank's host that the change does not leave."""
    return (1 - change.values[0]) * np.array([part_us(facts, change.target) for facts in measures.job.ranks])


def faster_kernels(measures: Measures, change: Change) -> Array:
    """Kernels of the target at another speed; for the optimizer also the gaps before its kernels."""
    left = change.values[0]
    if change.target != "optimizer":
        return np.asarray(measures.fp32_gemm_us * (1 - left))

    def gaps(facts: RankFacts) -> intervals.Intervals:
        idle = facts.gaps_of("host_launch")
        idle = idle.take(np.flatnonzero(idle["next_op"] >= 0))
        before = launched_in(facts, Phase.OPTIMIZER)[idle["next_op"]] if len(idle) else np.zeros(0, bool)
        return intervals.union(*idle.bounds_of(np.flatnonzero(before)))

    host_left = change.values[1] if len(change.values) > 1 else 1.0
    return np.asarray(measures.optimizer_us * (1 - left) + _per_rank(measures, gaps) * (1 - host_left))


def _exposed_us(measures: Measures, role: str) -> float:
    return sum(t.exposed_us for t in measures.comm.traffic if not role or t.role == role)


def faster_transfers(measures: Measures, change: Change) -> Array:
    """The exposed part of the transfers, which shrinks as they do."""
    left = change.values[0] if change.values else 0.0
    return np.full(len(measures.job.ranks), (1 - left) * _exposed_us(measures, change.target))


def exposed_first(measures: Measures, change: Change) -> Array:
    """The whole reduction of the transfers, up to their exposed part."""
    left = change.values[0] if change.values else 0.0
    of_role = [t for t in measures.comm.traffic if not change.target or t.role == change.target]
    lost = sum(min(t.exposed_us, (1 - left) * t.transfer_us) for t in of_role)
    return np.full(len(measures.job.ranks), lost)


def fewer_messages(measures: Measures, change: Change) -> Array:
    """Exposed latency of messages that are merged into larger ones."""
    saved = 0.0
    for traffic in measures.comm.traffic:
        model = fit_cost(traffic.sizes_bytes, traffic.times_us * 1e3)
        if traffic.role != change.target or not traffic.count:
            continue
        kept = max(1.0, traffic.total_bytes / change.values[0]) / traffic.count
        latency_us = traffic.exposed_us if model is None else traffic.count * model.alpha_ns / 1e3
        saved += min(traffic.exposed_us, latency_us * max(0.0, 1 - kept))
    return np.full(len(measures.job.ranks), saved)


def overlapped(measures: Measures, change: Change) -> Array:
    """Exposed transfers but for a last bucket of `values[0]` bytes."""
    hidden = 0.0
    for traffic in measures.comm.traffic:
        if traffic.role == change.target and traffic.total_bytes:
            hidden += traffic.exposed_us * (1 - min(1.0, change.values[0] / traffic.total_bytes))
        elif traffic.role == change.target:
            hidden += traffic.exposed_us
    return np.full(len(measures.job.ranks), hidden)


def needless_transfer(measures: Measures, change: Change) -> Array:
    """Exposed transfer of avoidable communication, and host time spent only on calling it."""
    return needless_us(measures.job, measures.needless.get(change.target), waits=False)


def needless_held(measures: Measures, change: Change) -> Array:
    """All time that avoidable communication blocks a rank; a wait for a late rank may move elsewhere."""
    return needless_us(measures.job, measures.needless.get(change.target), waits=True)


def _stage_excess_us(measures: Measures) -> float:
    """Work of the slowest stage above the mean stage's: all keep its pace."""
    pipeline = measures.job.pipeline
    if pipeline is None:
        return 0.0
    work = np.array([np.mean([measures.stage_work_us[p] for p in stage]) for stage in pipeline.stages])
    return float(work.max() - work.mean())


def even_stages(measures: Measures, _: Change) -> Array:
    """The excess over the mean stage, less one microbatch, which passes all stages however the work is shared."""
    microbatches = max(1, measures.job.pipeline.microbatches) if measures.job.pipeline else 1
    return np.full(len(measures.job.ranks), (1 - 1 / microbatches) * _stage_excess_us(measures))


def even_stages_at_most(measures: Measures, _: Change) -> Array:
    """The excess of the slowest stage."""
    return np.full(len(measures.job.ranks), _stage_excess_us(measures))


def all_exposed(role: str = "") -> Own:
    """All exposed transfers of a role, whatever a change does to them."""
    return lambda measures, _: np.full(len(measures.job.ranks), _exposed_us(measures, role))


def all_communication(measures: Measures, _: Change) -> Array:
    """All exposed communication, waiting included: a faster rank makes others wait less."""
    return sum((measures.cause_us(cause) for cause in MEETING), np.zeros(len(measures.job.ranks)))


def idle_or_exposed(measures: Measures, change: Change) -> Array:
    """Idle time after blocking calls, and communication that would run beside compute."""
    return all_communication(measures, change) + of_rank(idle_from_calls_us)(measures, change)


def of_cause(cause: str) -> Own:
    """Time booked to a cause."""
    return lambda measures, _: measures.cause_us(cause)


def of_rank(time_us: Callable[[RankFacts], float]) -> Own:
    """A time of each rank (us per step)."""
    return lambda measures, _: np.array([time_us(facts) for facts in measures.job.ranks])


def copies(left: float) -> Own:
    """Exposed copies through pageable memory, less the share that remains: the change's own, or `left`."""
    return lambda measures, change: (1 - min((left, *change.values))) * measures.pageable_us
