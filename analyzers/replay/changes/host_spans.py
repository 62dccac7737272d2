"""Changes of host time: removed spans, ready batches, non-blocking calls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.device import waiting_launches
from ddprof.analyzers.facts.model import RankFacts, Work
from ddprof.analyzers.job.device_idle import unrecorded_code
from ddprof.analyzers.job.host_costs import in_hooks, part_of
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.host_time import by_level
from ddprof.analyzers.replay.model import Anchor, Graph, Scenario, chosen, scaled
from ddprof.findings import Change
from ddprof.tables import NULL, Array

PREFETCHED_US = 150.0  # to take a batch from a filled prefetch queue: 0.1 to 0.2 ms on the healthy runs
FILLED_SHARE = 0.8  # of the time between two saving ranges in blocking copies: from this it is saving, too


def remove_host(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """The host spends no time in spans of the cause; copies they launched and blocking inside them go too."""
    host, dur, freed = {}, {}, {}
    for rank, _ in chosen(change, graph, measures):
        spans = rank.facts.spans_of(change.target).bounds
        if change.target == "checkpoint":
            spans = _with_copies_between(rank.facts, spans)
        host[rank.position] = ((spans, 0.0),)
        merged = intervals.union(*spans)
        inside = intervals.contains(merged, rank.anchors.start_ns)
        freed[rank.position] = frozenset(np.flatnonzero(inside).tolist())
        launched = intervals.contains(merged, rank.ops.launch_ns) & ~rank.ops.is_comm
        if launched.any():
            dur[rank.position] = np.where(launched, 0, rank.ops.dur_ns)
    return Scenario(dur_ns=dur, host_scale=host, freed=freed)


def _with_copies_between(facts: RankFacts, spans: intervals.Intervals) -> intervals.Intervals:
    """Saving copies tensors to the host between the ranges that name it: blocking copies that fill a gap are saving,
    where nothing that computes is launched between them: else it is a step, whose host waits for its device.
    """
    start, end = intervals.union(*spans)
    if len(start) < 2:
        return start, end
    copies, ops = intervals.union(*facts.spans_of("host_sync").bounds), facts.device_ops
    filled = intervals.overlap(copies, end[:-1], start[1:]) >= FILLED_SHARE * (start[1:] - end[:-1])
    launched = np.sort(ops["launch_ns"][(ops["work"] != Work.COPY) & (ops["launch_ns"] != NULL)])
    filled &= np.searchsorted(launched, end[:-1]) == np.searchsorted(launched, start[1:])
    return intervals.merge((start, end), (end[:-1][filled], start[1:][filled]))


def instant_loader(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Every batch is in the prefetch queue when it is asked for."""
    host, freed = {}, {}
    for rank, _ in chosen(change, graph, measures):
        spans = intervals.union(*rank.facts.spans_of("dataloader").bounds)
        length = spans[1] - spans[0]
        slow = length > PREFETCHED_US * 1e3
        total = float(length[slow].sum())
        left = PREFETCHED_US * 1e3 * int(slow.sum())
        freed[rank.position] = frozenset(np.flatnonzero(rank.anchors.kind == Anchor.LOADER).tolist())
        if total:
            host[rank.position] = (((spans[0][slow], spans[1][slow]), left / total),)
    return Scenario(host_scale=host, freed=freed)


def no_sync(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Blocking calls return at once, except in loading, saving, or before unrecorded host work that may need them."""
    freed = {}
    for rank, _ in chosen(change, graph, measures):
        saving = _with_copies_between(rank.facts, rank.facts.spans_of("checkpoint").bounds)
        loading = intervals.union(*rank.facts.spans_of("dataloader").bounds)
        kept = intervals.contains(intervals.merge(saving, loading), rank.anchors.start_ns)
        waits = (rank.anchors.kind == Anchor.SYNC) & ~kept & ~_leads_to_unrecorded_code(rank.facts, rank.anchors.end_ns)
        freed[rank.position] = frozenset(np.flatnonzero(waits).tolist())
    return Scenario(freed=freed)


def async_launch(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Calls that launch kernels return once their kernels begin."""
    host, freed = {}, {}
    for rank, _ in chosen(change, graph, measures):
        ops = rank.facts.device_ops
        kernels = ops.take(waiting_launches(ops))
        host[rank.position] = (((kernels["end_ns"], kernels["launch_end_ns"]), 0.0),)
        waits = np.isin(rank.anchors.start_ns, kernels["start_ns"])
        freed[rank.position] = frozenset(np.flatnonzero(waits).tolist())
    return Scenario(host_scale=host, freed=freed)


def _leads_to_unrecorded_code(facts: RankFacts, at_ns: Array) -> Array:
    """Mask of moments after which the host first does unrecorded work, not a launch; shape as `at_ns`."""
    launches, never = np.sort(facts.device_ops["launch_ns"]), np.iinfo(np.int64).max
    silence, launch = (
        np.append(begin, never)[np.searchsorted(begin, at_ns)] for begin in (unrecorded_code(facts)[0], launches)
    )
    return np.asarray(silence < launch)


def no_stalls(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Every call in which a host stalled takes as long as it usually does."""
    host = {}
    for rank, _ in chosen(change, graph, measures):
        stalls = rank.facts.stalls
        spans = intervals.union(*stalls.bounds)
        total = intervals.length(spans)
        if total:
            host[rank.position] = ((spans, min(1.0, float(stalls["usual_ns"].sum()) / total)),)
    return Scenario(host_scale=host)


def on_time(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Nobody waits for these ranks: as if they always arrived with their peers."""
    return Scenario(on_time=frozenset(rank.position for rank, _ in chosen(change, graph, measures)))


def no_script(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """The host spends only the share `values[0]` of its time in script Python between phases, or long stops inside."""
    host, left = {}, change.values[0] if change.values else 0.0
    for rank, _ in chosen(change, graph, measures):
        script = measures.script[rank.position]
        if len(script.every[0]):
            host[rank.position] = ((script.every, 1.0 - script.share * (1.0 - left)),)
    return Scenario(host_scale=host)


def no_hook(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Communication hooks only start their communication."""
    held = {rank.position: in_hooks(rank.facts) for rank, _ in chosen(change, graph, measures)}
    return Scenario(host_scale={position: ((spans, 0.0),) for position, spans in held.items() if len(spans[0])})


def scale_part(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """A part of the hosts' time (job/host_costs.py), `target`, takes `values[0]` of it."""
    ranks = [rank for rank, _ in chosen(replace(change, values=()), graph, measures)]
    held = {rank.position: part_of(rank.facts, change.target) for rank in ranks}
    return Scenario(host_scale={p: ((spans, change.values[0]),) for p, spans in held.items() if len(spans[0])})


def no_anomaly(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Nothing is searched for NaN after nodes of the backward pass, and no operator writes down its stack."""
    dur, queue, host, freed = {}, {}, {}, {}
    for rank, _ in chosen(change, graph, measures):
        work = rank.facts.anomaly_work
        host[rank.position] = by_level(work.bounds, 1.0 - work["share"])
        checks = intervals.union(*work.bounds_of(work["is_check"]))
        freed[rank.position] = frozenset(np.flatnonzero(intervals.contains(checks, rank.anchors.start_ns)).tolist())
        launched = intervals.contains(checks, rank.ops.launch_ns) & ~rank.ops.is_comm
        dur[rank.position] = scaled(rank.ops.dur_ns, launched, 0.0)
        queue[rank.position] = scaled(rank.ops.queue_lag_ns, launched, 0.0)
    return Scenario(dur_ns=dur, host_scale=host, freed=freed, queue_ns=queue)
