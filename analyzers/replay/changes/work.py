"""Changes of how fast ranks work: by a factor, as their peers do, or all alike."""

from __future__ import annotations

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.facts.memory import recomputed, recomputing
from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.facts.work import host_work, running
from ddprof.analyzers.job.copies import pageable_copies
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.peers.operators import extra_spans
from ddprof.analyzers.job.slowdown import peers
from ddprof.analyzers.replay.changes.segments import (
    device_factors,
    device_factors_to_mean,
    scaled_to_mean,
    scaled_to_peers,
)
from ddprof.analyzers.replay.host_time import Scaled
from ddprof.analyzers.replay.model import Graph, RankGraph, Scenario, chosen, scaled
from ddprof.findings import Change
from ddprof.tables import Array


def scale_compute(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Kernels of each rank take 1 / value of their time; on a CPU rank its operators and the Python between them do.

    With the target "peers" a CPU rank takes its peers' time in every segment, where segments can be compared.
    """
    dur, host = {}, {}
    for rank, factor in chosen(change, graph, measures):
        if rank.execution.computes_on_host:
            as_peers = _as_peers(change, rank, graph, measures)
            host[rank.position] = as_peers or ((running(rank.facts), 1.0 / factor),)
        else:
            ops = rank.ops
            dur[rank.position] = np.where(ops.is_comm, ops.dur_ns, np.round(ops.dur_ns / factor)).astype(np.int64)
    return Scenario(dur_ns=dur, host_scale=host)


def _as_peers(change: Change, rank: RankGraph, graph: Graph, measures: Measures) -> Scaled | None:
    """Parts of the host's busy time scaled to the peers' for the target "peers"; None where one factor must do."""
    if change.target != "peers":
        return None
    groups = _peer_groups(graph, measures)
    group = next(group for group in groups if any(other.position == rank.position for other in group))
    others = [other for other in group if measures.job.rank_ids[other.position] not in change.ranks]
    return scaled_to_peers(rank.facts, [r.facts for r in others], rank.execution.host_busy)


def balance_compute(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """In every segment between two collectives each rank computes for the mean time of all ranks (OSDI'25: the mean for
    compute), so that what is the same on all ranks stays; in every step where segments cannot be compared.

    In a pipeline whose timeline records each pass as one operation, each pass takes the mean of its kind: stages wait
    for unequal microbatches as ranks do for unequal batches. With the target "extra" only what single ranks run beside
    the others in a step is moved: half way between dividing it over all and leaving it out.
    """
    if change.target == "extra":
        return _without_extra(graph, measures)
    balanced = _balanced_hosts(graph, measures)
    if balanced is not None:
        return Scenario(host_scale=balanced)
    steps = min(len(rank.marks_ns) for rank in graph.ranks)
    dur, host = dict[int, Array](), dict[int, Scaled]()
    for group in _peer_groups(graph, measures):
        by_passes = measures.job.pipeline is not None and not any(rank.has_host for rank in group)
        balanced_ns = _mean_passes(group) if by_passes else _to_mean(group)
        if balanced_ns is not None:
            dur.update(balanced_ns)
            continue
        times = np.array([_compute_ns(rank)[:steps] for rank in group], float)
        mean = times.mean(axis=0)
        for rank, computed in zip(group, times, strict=True):
            with np.errstate(invalid="ignore", divide="ignore"):
                factor = np.where(computed > 0, mean / computed, 1.0)
            _scale_steps(rank, factor, dur, host)
    return Scenario(dur_ns=dur, host_scale=host)


def _to_mean(group: list[RankGraph]) -> dict[int, Array] | None:
    """Durations with the mean compute of these ranks in every segment; None where segments cannot be compared."""
    if any(rank.execution.computes_on_host for rank in group):
        return None
    compute = [_kernels_ns(rank) for rank in group]
    factors = device_factors_to_mean([r.facts for r in group], [r.ops.issued_ns for r in group], compute)
    if factors is None:
        return None
    return {
        rank.position: np.where(own > 0, np.round(own * factor), rank.ops.dur_ns).astype(np.int64)
        for rank, own, factor in zip(group, compute, factors, strict=True)
    }


def _kernels_ns(rank: RankGraph) -> Array:
    """Duration of each operation that computes, ns; 0 of the others."""
    return np.where(rank.ops.is_comm | rank.ops.is_copy, 0, rank.ops.dur_ns)


def _without_extra(graph: Graph, measures: Measures) -> Scenario:
    """CPU ranks without most of the operators that they run in a step more often than their peers."""
    host: dict[int, Scaled] = {}
    extra, gone = measures.compute.extra, 1 - 1 / (2 * len(graph.ranks))
    if extra is not None:
        for rank in graph.ranks:
            spans = extra_spans(rank.facts, extra.names, extra.parts[rank.position])
            host[rank.position] = tuple((where, 1 - gone * float(part)) for where, part in spans)
    return Scenario(host_scale={position: spans for position, spans in host.items() if spans})


def _mean_passes(group: list[RankGraph]) -> dict[int, Array]:
    """Durations in which each operation but communication takes the mean of its name and step on all these ranks."""
    numbers: dict[str, int] = {}
    keys, lengths = [], []
    for rank in group:
        names = rank.facts.device_ops["name"][rank.ops.row]
        distinct, which = np.unique(names, return_inverse=True)
        number = np.array([numbers.setdefault(rank.facts.strings[n], len(numbers)) for n in distinct.tolist()])
        keys.append(np.stack((_step_of_ops(rank), number[which]))[:, ~rank.ops.is_comm])
        lengths.append(rank.ops.dur_ns[~rank.ops.is_comm])
    _, kind = np.unique(np.concatenate(keys, axis=1), axis=1, return_inverse=True)
    every = np.concatenate(lengths)
    mean = (np.bincount(kind.ravel(), weights=every) / np.bincount(kind.ravel()))[kind.ravel()]
    durations, begin = {}, 0
    for rank, length in zip(group, lengths, strict=True):
        dur = rank.ops.dur_ns.copy()
        dur[~rank.ops.is_comm] = np.round(mean[begin : begin + len(length)])
        durations[rank.position] = dur
        begin += len(length)
    return durations


def _balanced_hosts(graph: Graph, measures: Measures) -> dict[int, Scaled] | None:
    """Busy time of CPU ranks scaled to the peers' mean, segment by segment; None where segments cannot be compared."""
    if not all(rank.execution.computes_on_host for rank in graph.ranks):
        return None
    host: dict[int, Scaled] = {}
    for group in _peer_groups(graph, measures):
        scaled = scaled_to_mean([rank.facts for rank in group], running)
        if scaled is None:
            return None
        host.update(zip((rank.position for rank in group), scaled, strict=True))
    return host


def _peer_groups(graph: Graph, measures: Measures) -> list[list[RankGraph]]:
    groups = map(set, peers(len(measures.job.ranks), measures.job.pipeline))
    graphs = [[rank for rank in graph.ranks if rank.position in group] for group in groups]
    return [group for group in graphs if group]


def _step_of_ops(rank: RankGraph) -> Array:
    """Position of the step each operation was launched in."""
    return np.clip(np.searchsorted(rank.marks_ns, rank.ops.issued_ns, side="right"), 0, len(rank.marks_ns) - 1)


def _compute_ns(rank: RankGraph) -> Array:
    """Compute time of each step, ns, shape (steps,): of kernels, or of operators on the host."""
    weight = np.where(rank.ops.is_comm, 0, rank.ops.dur_ns)
    kernels_ns = np.bincount(_step_of_ops(rank), weights=weight, minlength=len(rank.marks_ns))
    return kernels_ns + intervals.overlap(host_work(rank.facts), *rank.facts.steps.bounds)


def _scale_steps(rank: RankGraph, factor: Array, dur: dict[int, Array], host: dict[int, Scaled]) -> None:
    """Multiply the compute of each step by its factor, in `dur` or `host`; steps without a factor stay."""
    padded = np.concatenate((factor, np.ones(max(0, len(rank.marks_ns) - len(factor)))))
    if not rank.execution.computes_on_host:
        scale = np.where(rank.ops.is_comm, 1.0, padded[_step_of_ops(rank)])
        dur[rank.position] = np.round(rank.ops.dur_ns * scale).astype(np.int64)
        return
    steps = rank.facts.steps
    work = host_work(rank.facts)
    host[rank.position] = tuple(
        (intervals.clip(work, int(lo), int(hi)), float(f))
        for lo, hi, f in zip(steps["start_ns"], steps["end_ns"], padded, strict=False)
    )


def level_compute(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """The ranks compute no longer than their typical peer that the change does not name: in every segment between two
    collectives, so that what they do beside the peers' work goes; in every step where segments cannot be compared.
    With the target "fed" they are fed no more: their loaders and, on CPU ranks, all that their threads do is levelled.
    With "spread" what they compute beyond the peers is not gone but divided over all, so that they keep their part.
    """
    steps = min(len(rank.marks_ns) for rank in graph.ranks)
    dur, host = dict[int, Array](), dict[int, Scaled]()
    for group in _peer_groups(graph, measures):
        others = [rank for rank in group if measures.job.rank_ids[rank.position] not in change.ranks]
        if not others:
            continue
        usual = averages.typical_row(np.array([_compute_ns(rank)[:steps] for rank in others], float))
        kept = 1 - len(others) / len(group) if change.target == "spread" else 0.0
        for rank in (rank for rank in group if measures.job.rank_ids[rank.position] in change.ranks):
            compared = [rank, *others]
            compute = [_kernels_ns(r) for r in compared]
            factors = None
            if not rank.execution.computes_on_host:
                factors = device_factors([r.facts for r in compared], [r.ops.issued_ns for r in compared], compute)
            if factors is None:
                computed = _compute_ns(rank)[:steps].astype(float)
                as_fed = None
                if change.target == "fed" and rank.execution.computes_on_host:
                    as_fed = scaled_to_peers(rank.facts, [other.facts for other in others], running)
                if as_fed is None:
                    factor = np.minimum(1.0, usual / np.maximum(computed, 1.0))
                    _scale_steps(rank, kept + (1 - kept) * factor, dur, host)
                else:
                    host[rank.position] = as_fed
            else:
                scale = np.where(compute[0] > 0, kept + (1 - kept) * factors, 1.0)
                dur[rank.position] = np.round(rank.ops.dur_ns * scale).astype(np.int64)
            if change.target == "fed":
                host[rank.position] = (*host.get(rank.position, ()), _loading_as(rank, others))
    return Scenario(dur_ns=dur, host_scale=host)


def _loading_as(rank: RankGraph, others: list[RankGraph]) -> tuple[intervals.Intervals, float]:
    """The time in a rank's loader, and the factor that makes it the typical peer's; 1 where that is longer."""
    spans, *of_others = [intervals.union(*each.facts.spans_of("dataloader").bounds) for each in (rank, *others)]
    usual = [
        float(intervals.overlap(each, *other.facts.marks).mean()) for each, other in zip(of_others, others, strict=True)
    ]
    loading = float(intervals.overlap(spans, *rank.facts.marks).mean())
    return spans, min(1.0, averages.typical(np.array(usual)) / max(loading, 1.0))


def balance_stages(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Layers moved until every pipeline stage has the same work."""
    pipeline = measures.job.pipeline
    if pipeline is None:
        return Scenario()
    dur, host = dict[int, Array](), dict[int, Scaled]()
    for chain in zip(*pipeline.stages, strict=True):
        mean = float(np.mean([measures.stage_work_us[p] for p in chain]))
        for rank in graph.ranks:
            if rank.position in chain and measures.stage_work_us[rank.position] > 0:
                factor = np.full(len(rank.marks_ns), mean / measures.stage_work_us[rank.position])
                _scale_steps(rank, factor, dur, host)
    return Scenario(dur_ns=dur, host_scale=host)


def scale_host(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """The host of each rank works value times faster whenever it is free to run; target "peers" as in `scale_compute`.

    Operators of a CPU rank run on its host, so with the target "peers" they take its peers' time, too.
    """
    host = {}
    for rank, factor in chosen(change, graph, measures):
        facts = rank.facts
        as_peers = _as_peers(change, rank, graph, measures)
        if as_peers:
            host[rank.position] = as_peers
            continue
        lo, hi = rank.origin_ns, int(rank.marks_ns[-1])
        taken = intervals.merge(facts.host_spans.bounds, host_work(facts))
        host[rank.position] = ((intervals.complement(taken, lo, hi), 1.0 / factor),)
    return Scenario(host_scale=host)


# Changes of device operations: faster kernels, one launch for the whole step, non-blocking copies.

PINNED_SHARE = 0.22  # of a pageable copy's time: ~5 GB/s through the driver's staging buffer against 20 to 25 on PCIe 4
GRAPH_LAUNCH_SHARE = 0.05  # host time left of a step when it is launched as one CUDA graph


def graph_launch(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Launch the step as a whole: hardly any host time between kernels, and no gap between them."""
    scaled = scale_host(Change("scale_host", change.ranks, (1.0 / GRAPH_LAUNCH_SHARE,)), graph, measures)
    queue = {rank.position: np.zeros_like(rank.ops.queue_lag_ns) for rank, _ in chosen(change, graph, measures)}
    return Scenario(host_scale=scaled.host_scale, queue_ns=queue)


def scale_kernels(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Marked kernels take value times as long. `target`: "fp32_gemm", or "optimizer", of whose kernels so many are gone
    that the gaps between them shrink alike.
    """
    dur, queue, host = dict[int, Array](), dict[int, Array](), dict[int, Scaled]()
    for rank in graph.ranks:
        facts = rank.facts
        if change.target == "fp32_gemm":
            groups = facts.kernel_groups
            names = groups["name"][groups["is_fp32"].astype(bool)]
            marked = np.isin(facts.device_ops["name"][rank.ops.row], names)
        else:
            spans = facts.phase_time(Phase.OPTIMIZER)
            marked = intervals.contains(spans, rank.ops.launch_ns)
            host[rank.position] = ((spans, change.values[1] if len(change.values) > 1 else 1.0),)
        marked &= ~rank.ops.is_comm
        if change.target == "optimizer":
            queue[rank.position] = scaled(rank.ops.queue_lag_ns, marked, change.values[0])
        dur[rank.position] = scaled(rank.ops.dur_ns, marked, change.values[0])
    return Scenario(dur_ns=dur, host_scale=host, queue_ns=queue)


def keep_activations(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Keep a share `values[0]` of the activations recomputed in backward, which launches that much less."""
    dur, queue, host = dict[int, Array](), dict[int, Array](), dict[int, Scaled]()
    left = 1.0 - change.values[0]
    for rank in graph.ranks:
        ops = rank.facts.device_ops
        if not len(ops):
            continue
        again = recomputed(ops, rank.facts.strings)
        marked = again[rank.ops.row] & ~rank.ops.is_comm
        dur[rank.position] = scaled(rank.ops.dur_ns, marked, left)
        queue[rank.position] = scaled(rank.ops.queue_lag_ns, marked, left)
        host[rank.position] = ((intervals.union(*recomputing(ops, again)), left),)
    return Scenario(dur_ns=dur, host_scale=host, queue_ns=queue)


def hide_copies(change: Change, graph: Graph, measures: Measures) -> Scenario:
    """Copy through pinned instead of pageable host memory: faster, and without blocking. `values[0]`: the share of
    their time that is left instead, 0 where what is copied stays on the device.
    """
    left = change.values[0] if change.values else PINNED_SHARE
    dur, freed = {}, {}
    for rank in graph.ranks:
        facts = rank.facts
        if not len(facts.device_ops):
            continue
        pageable = pageable_copies(facts)[rank.ops.row]
        dur[rank.position] = scaled(rank.ops.dur_ns, pageable, left)
        launches = rank.ops.launch_ns[pageable]
        freed[rank.position] = frozenset(np.flatnonzero(np.isin(rank.anchors.start_ns, launches)).tolist())
    return Scenario(dur_ns=dur, freed=freed)


# Assumed speed of faster implementations, which no trace shows: one place for rules and planners.

HALF_PRECISION_SPEEDUP = 2.5  # of fp32 products: between Daydream's 3 if compute-bound and 2 if memory-bound (ATC'20)
TF32_SPEEDUP = 2.0  # half the peak of 16 bit
FUSED_DEVICE_SHARE = 0.3  # of an optimizer's device time: bytes of one pass over those of about 10 elementwise kernels
FUSED_HOST_SHARE = 0.05  # of its host time
FUSED_CPU_SHARE = 0.25  # of its step on a CPU rank: AdamW of 520 small tensors took 2.8 ms for 13.3 (2026-11-28)
LOOPED_SHARE = 0.15  # of operators called one by one: nn.LSTM left 0.16 of its cell's, a batched loss none (2026-11-28)
