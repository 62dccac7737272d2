"""Changes of how fast ranks work: by a factor, as their peers do, or all alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import free_host, host_work
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.slowdown import peers
from ddprof.analyzers.replay.changes.ranks import chosen
from ddprof.analyzers.replay.changes.segments import scaled_to_mean, scaled_to_peers
from ddprof.analyzers.replay.host_time import Scaled, running
from ddprof.analyzers.replay.model import Graph, RankGraph, Scenario
from ddprof.findings import Change
from ddprof.tables import Array


def scale_compute(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Kernels of the ranks take 1 / value of their time; on a CPU rank its operators and the Python between them do.

    Target "peers": a CPU rank takes its peers' time wherever ranks can be compared.
    """
    dur, host = {}, {}
    for rank, factor in chosen(change, graph, measures):
        if rank.facts.is_device_rank:
            ops = rank.ops
            dur[rank.position] = np.where(ops.is_comm, ops.dur_ns, np.round(ops.dur_ns / factor)).astype(np.int64)
        else:
            alike = _alike(change, rank, graph, measures, running)
            host[rank.position] = alike or ((running(rank.facts), 1.0 / factor),)
    return Scenario(dur_ns=dur, host_scale=host)


def _alike(
    change: Change, rank: RankGraph, graph: Graph, measures: Measures, busy: Callable[[RankFacts], intervals.Intervals]
) -> Scaled | None:
    """What the change means on this rank where it says "peers"; None where one factor must do."""
    if change.target != "peers":
        return None
    group = next(group for group in peers(len(measures.job.ranks), measures.job.pipeline) if rank.position in group)
    others = [r for r in graph.ranks if r.position in group and measures.job.rank_ids[r.position] not in change.ranks]
    return scaled_to_peers(rank.facts, [r.facts for r in others], busy)


def balance_compute(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """In every step each rank computes as long as its peers do on average (OSDI'25: the mean for compute).

    CPU ranks do in every segment, where segments can be compared: what is the same on all ranks (an optimizer) stays.
    """
    alike = _balanced_hosts(graph, measures)
    if alike is not None:
        return Scenario(host_scale=alike)
    times = _compute_per_step(graph)
    dur: dict[int, Array] = {}
    host: dict[int, Scaled] = {}
    for group in peers(len(measures.job.ranks), measures.job.pipeline):
        rows = [i for i, rank in enumerate(graph.ranks) if rank.position in group]
        mean = times[rows].mean(axis=0)
        for i in rows:
            with np.errstate(invalid="ignore", divide="ignore"):
                factor = np.where(times[i] > 0, mean / times[i], 1.0)
            _scale_steps(graph.ranks[i], factor, dur, host)
    return Scenario(dur_ns=dur, host_scale=host)


def _balanced_hosts(graph: Graph, measures: Measures) -> dict[int, Scaled] | None:
    if any(rank.facts.is_device_rank for rank in graph.ranks):
        return None
    host: dict[int, Scaled] = {}
    for group in peers(len(measures.job.ranks), measures.job.pipeline):
        ranks = [rank for rank in graph.ranks if rank.position in group]
        scaled = scaled_to_mean([rank.facts for rank in ranks], running)
        if scaled is None:
            return None
        host.update(zip((rank.position for rank in ranks), scaled, strict=True))
    return host


def _step_of_ops(rank: RankGraph) -> Array:
    """Position of the step each operation was launched in."""
    return np.clip(np.searchsorted(rank.marks_ns, rank.ops.issued_ns, side="right"), 0, len(rank.marks_ns) - 1)


def _compute_per_step(graph: Graph) -> Array:
    """Compute time per rank graph and step, ns, shape (ranks, steps); steps beyond the shortest rank are left out."""
    steps = min(len(rank.marks_ns) for rank in graph.ranks)
    times = np.zeros((len(graph.ranks), steps))
    for i, rank in enumerate(graph.ranks):
        if rank.facts.is_device_rank:
            weight = np.where(rank.ops.is_comm, 0, rank.ops.dur_ns)
            times[i] = np.bincount(_step_of_ops(rank), weights=weight, minlength=len(rank.marks_ns))[:steps]
        else:
            steps_table = rank.facts.steps
            times[i] = intervals.overlap(host_work(rank.facts), *steps_table.bounds)[:steps]
    return times


def _scale_steps(
    rank: RankGraph,
    factor: Array,
    dur: dict[int, Array],
    host: dict[int, Scaled],
) -> None:
    padded = np.concatenate((factor, np.ones(max(0, len(rank.marks_ns) - len(factor)))))
    if rank.facts.is_device_rank:
        scale = np.where(rank.ops.is_comm, 1.0, padded[_step_of_ops(rank)])
        dur[rank.position] = np.round(rank.ops.dur_ns * scale).astype(np.int64)
        return
    steps = rank.facts.steps
    work = host_work(rank.facts)
    host[rank.position] = tuple(
        (intervals.clip(work, int(lo), int(hi)), float(f))
        for lo, hi, f in zip(steps["start_ns"], steps["end_ns"], padded, strict=False)
    )


def balance_stages(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Layers moved until every pipeline stage has the same work."""
    pipeline = measures.job.pipeline
    if pipeline is None:
        return Scenario()
    dur: dict[int, Array] = {}
    host: dict[int, Scaled] = {}
    for chain in zip(*pipeline.stages, strict=True):
        mean = float(np.mean([measures.stage_work_us[p] for p in chain]))
        for rank in graph.ranks:
            if rank.position in chain and measures.stage_work_us[rank.position] > 0:
                factor = np.full(len(rank.marks_ns), mean / measures.stage_work_us[rank.position])
                _scale_steps(rank, factor, dur, host)
    return Scenario(dur_ns=dur, host_scale=host)


def scale_host(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """The host works value times faster whenever it is free to run; target "peers" as in `scale_compute`.

    Operators of a CPU rank run on that host: they become its peers' too.
    """
    host = {}
    for rank, factor in chosen(change, graph, measures):
        facts = rank.facts
        alike = _alike(change, rank, graph, measures, free_host if facts.is_device_rank else running)
        if alike:
            host[rank.position] = alike
            continue
        lo, hi = rank.origin_ns, int(rank.marks_ns[-1])
        taken = intervals.merge(facts.host_spans.bounds, host_work(facts))
        host[rank.position] = ((intervals.complement(taken, lo, hi), 1.0 / factor),)
    return Scenario(host_scale=host)
