"""DDP's gradient buckets: the time of each gradient, and the end of the last bucket for another bucket size.

Buckets are reduced one after another, on one stream. A bucket starts when it is full on every rank and the bucket
before it has ended: `start_k = max(end_{k-1}, max_r ready_{k,r})`, `end_k = start_k + t(S_k)` (the DDP paper's
schedule). Gradient times come from capture, per parameter; else from the recorded buckets, at an even rate between
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.execution.operations import StepMarks
from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.cost import TransferCurve, transfer_curve
from ddprof.analyzers.job.traffic.kinds import GRADIENT_ROLES
from ddprof.analyzers.job.traffic.statistics import Traffic, with_known_transfer
from ddprof.analyzers.job.waiting.waits import members_of
from ddprof.analyzers.replay.model import Graph, RankGraph
from ddprof.derived_once import remembered
from ddprof.tables import NULL, Array

# The backward pass of a step: its start, its compute, and the time at which each gradient exists.


class Gradients(Struct, frozen=True):
    """Gradients in the order in which they came: sizes, and times relative to the last one (<= 0), ns."""

    size_bytes: Array
    offset_ns: Array


def backward_start_ns(rank: RankGraph, step: int) -> int:
    """Start of the last backward pass of a step on the device (on a CPU rank: the host), own clock."""
    return rank.execution.backward_start_ns(rank.ops, _step_marks(rank, step))


def backward_compute_ns(rank: RankGraph) -> Array:
    """Compute (ns) of the last backward pass of each step, shape (steps,): communication can hide behind so much."""
    marks = [_step_marks(rank, step) for step in range(len(rank.marks_ns))]
    return rank.execution.backward_compute_ns(rank.facts, rank.ops, marks)


def _step_marks(rank: RankGraph, step: int) -> StepMarks:
    lo = rank.origin_ns if step == 0 else int(rank.marks_ns[step - 1])
    hi = int(rank.marks_ns[min(step, len(rank.marks_ns) - 1)])
    phases = rank.facts.phases
    inside = (phases["start_ns"] >= lo) & (phases["start_ns"] < hi)
    optimizer = phases["start_ns"][inside & (phases["phase"] == Phase.OPTIMIZER)]
    forward = phases["end_ns"][inside & (phases["phase"] == Phase.FORWARD)]
    # Without launches a phase of the host says nothing about when kernels ran.
    return StepMarks(
        start_ns=lo,
        forward_end_ns=int(forward.max()) if len(forward) and rank.has_host else None,
        until_ns=int(optimizer.max()) if len(optimizer) and rank.has_host else hi,
    )


def gradients_ready(rank: RankGraph) -> Gradients | None:
    """The capture's gradient times (host hooks); None where they were not captured.

    On a device the hook runs when the kernel is launched: the gradient exists when the last kernel launched before the
    hook has ended.
    """
    parameters = rank.facts.sidecar.gradient_ready.parameters
    if len(parameters) < 2:
        return None
    ready = np.array([p.ready_ns for p in parameters], np.int64)
    sizes = np.array([p.size_bytes for p in parameters], float)
    kernels = np.flatnonzero(~rank.ops.is_comm)
    kernels = kernels[np.argsort(rank.ops.launch_ns[kernels], kind="stable")]
    at = np.searchsorted(rank.ops.launch_ns[kernels], ready) - 1
    if len(kernels) and (at >= 0).all() and ready[-1] < rank.marks_ns[-1]:
        ready = np.maximum.accumulate(rank.ops.end_ns[kernels[at]])
    return Gradients(sizes, (ready - ready[-1]).astype(float))


Cost = Callable[[float], float]  # bytes of a message -> its transfer, ns
ALL_REDUCE = OP_CODE["all_reduce"]
HELD_BACK_SHARE = 0.05  # of the backward pass: buckets that all become ready within it were held back, not filled late
MIN_BUCKET_BYTES = 16 * 1024  # a smaller message is a loss or a flag, not gradients


class Reduction(Struct, frozen=True):
    """The reduction of one backward pass in one data-parallel group; times on the reference clock, ns."""

    rows: dict[int, Array]  # rank position -> rows of its Ops, in launch order
    sizes_bytes: Array  # (buckets,), as recorded
    ready_ns: Array  # (buckets,), full on every rank
    began_ns: int  # first gradient work of the latest rank
    end_ns: int  # the last bucket is reduced
    gradients: Gradients | None  # per parameter, relative to the last gradient

    @property
    def last_ns(self) -> int:
        """Time by which the last gradient existed on every rank."""
        return int(self.ready_ns[-1])


def gradient_traffic(measures: Measures) -> Traffic | None:
    """The traffic that carries the gradients: most bytes in all-reduces between data-parallel ranks; None without."""
    reduced = [t for t in measures.comm.traffic if t.op == "all_reduce" and t.role in GRADIENT_ROLES and t.total_bytes]
    return max(reduced, key=lambda t: t.total_bytes, default=None)


def gradient_curve(measures: Measures) -> TransferCurve | None:
    """Cost of an all-reduce by size in this run; small ones that are not gradients show the latency."""
    traffic, prior = gradient_traffic(measures), execution_of(measures.job).limits.transfer_prior
    if traffic is None:
        return None
    return transfer_curve(traffic.sizes_bytes, traffic.times_us * 1e3, prior)


@remembered
def reductions(measures: Measures, graph: Graph) -> tuple[Reduction, ...]:
    """Every reduction of the run, in order of group and step."""
    traffic = gradient_traffic(measures)
    if traffic is None:
        return ()
    every = []
    for members in _groups(graph, measures, traffic.role):
        steps = min(len(rank.marks_ns) for rank, _ in members)
        step_of = [np.searchsorted(rank.marks_ns, rank.ops.issued_of_ns(rows), side="right") for rank, rows in members]
        for step in range(steps):
            chosen = {rank.position: rows[of == step] for (rank, rows), of in zip(members, step_of, strict=True)}
            counts = {len(rows) for rows in chosen.values()}
            if len(counts) == 1 and counts != {0}:
                every.append(_reduction([rank for rank, _ in members], chosen, step))
    return tuple(every)


def _groups(graph: Graph, measures: Measures, role: str) -> Iterator[list[tuple[RankGraph, Array]]]:
    """Per data-parallel group: its rank graphs, each with the operations that reduce gradients in it."""
    job = measures.job
    serving, known = np.flatnonzero((job.groups["role"] == role) & (job.groups["size"] > 1)), with_known_transfer(job)
    for group in serving.tolist():
        is_reduced = known & (job.instances["group"] == group) & (job.instances["op"] == ALL_REDUCE)
        members = []
        for rank in graph.ranks:
            of_rank = members_of(job.members, rank.position)
            of_rank = of_rank[is_reduced[job.members["instance"][of_rank]]]
            rows = np.flatnonzero(np.isin(rank.ops.comm, job.members["comm"][of_rank]) & rank.ops.is_comm)
            rows = rows[rank.facts.comms["size_bytes"][rank.ops.comm[rows]] >= MIN_BUCKET_BYTES]
            if len(rows):
                members.append((rank, rows[np.argsort(rank.ops.start_ns[rows], kind="stable")]))
        if members:
            yield members


def _reduction(ranks: list[RankGraph], chosen: dict[int, Array], step: int) -> Reduction:
    ready, began, ends, gradients = [], [], [], []
    for rank in ranks:
        rows = chosen[rank.position]
        ready.append(np.maximum.accumulate(_ready_ns(rank, rows)) - rank.offset_ns)
        began.append(min(backward_start_ns(rank, step) - rank.offset_ns, int(ready[-1][0])))
        ends.append(int(rank.ops.end_of_ns(rows).max()) - rank.offset_ns)
        gradients.append(gradients_ready(rank))
    latest = int(np.argmax([r[-1] for r in ready]))
    sizes = ranks[0].facts.comms["size_bytes"][ranks[0].ops.comm[chosen[ranks[0].position]]]
    return Reduction(
        rows=chosen,
        sizes_bytes=np.where(sizes == NULL, 0, sizes).astype(float),
        ready_ns=np.max(np.stack(ready), axis=0),
        began_ns=began[latest],
        end_ns=max(ends),
        gradients=gradients[latest],
    )


def _ready_ns(rank: RankGraph, rows: Array) -> Array:
    """Time at which each bucket was full on this rank: end of the compute it waited for; on a CPU rank, the call."""
    ops = rank.ops
    called = ops.issued_of_ns(rows)
    dep = ops.dep[rows]
    held = dep >= 0
    ends = ops.end_of_ns(np.maximum(dep, 0))
    return np.where(held, np.maximum(ends, called), called)


def filled(reduction: Reduction) -> tuple[Array, Array]:
    """Gradients over time: cumulative bytes, and when so many existed (reference ns); from 0 at the first gradient."""
    total = np.cumsum(reduction.sizes_bytes)
    span = reduction.last_ns - reduction.began_ns
    if reduction.last_ns - int(reduction.ready_ns[0]) < HELD_BACK_SHARE * span:
        total, ready = total[-1:], reduction.ready_ns[-1:]  # all were held back to the end
    else:
        ready = reduction.ready_ns
    return np.concatenate(([0.0], total)), np.concatenate(([float(reduction.began_ns)], ready.astype(float)))


def planned(reduction: Reduction, cap_bytes: float, first_bytes: float) -> tuple[Array, Array]:
    """Buckets of at most the caps: sizes in bytes and when each is full (reference ns), in order."""
    total = float(reduction.sizes_bytes.sum())
    if reduction.gradients is not None:
        sizes, offsets = _closed(reduction.gradients, cap_bytes, first_bytes)
        return sizes * total / max(float(sizes.sum()), 1.0), reduction.last_ns + offsets
    count = int(max(0.0, total - first_bytes) // cap_bytes)
    sizes = np.array([min(first_bytes, total), *[cap_bytes] * count])
    rest = total - float(sizes.sum())
    sizes = np.append(sizes, rest) if rest > 1.0 else sizes
    return sizes, np.interp(np.cumsum(sizes), *filled(reduction))


def _closed(gradients: Gradients, cap_bytes: float, first_bytes: float) -> tuple[Array, Array]:
    """Buckets as DDP's reducer assigns parameters: the parameter with which a bucket reaches its limit closes it."""
    sizes, offsets = [], []
    held, limit = 0.0, first_bytes
    for size, offset in zip(gradients.size_bytes.tolist(), gradients.offset_ns.tolist(), strict=True):
        held += size
        if held >= limit:
            sizes.append(held)
            offsets.append(offset)
            held, limit = 0.0, cap_bytes
    if held:
        sizes.append(held)
        offsets.append(0.0)
    return np.array(sizes), np.array(offsets)


def scheduled_end_ns(sizes_bytes: Array, ready_ns: Array, cost: Cost) -> float:
    """End of the last bucket (reference ns), reduced one after the other on one stream."""
    end = -np.inf
    for size, ready in zip(sizes_bytes.tolist(), ready_ns.tolist(), strict=True):
        end = max(end, ready) + cost(size)
    return float(end)


class Schedule(Struct, frozen=True):
    """A backward pass in other buckets, ns: from the last gradient to the end, and what was transferred before that."""

    tail_ns: float
    hidden_ns: float


def scheduled(
    reduction: Reduction,
    cost: Cost,
    cap_bytes: float,
    first_bytes: float,
    measured: Cost,
    interference: float,
) -> Schedule:
    """The reduction under other caps, at the `cost` of a message.

    The error of the same schedule for the recorded buckets, at the `measured` costs, is added to the tail, which is at
    least the transfer of the last bucket. Kernels beside communication that did not run beside them in the recording
    take `interference` longer.
    """
    sizes, ready = planned(reduction, cap_bytes, first_bytes)
    missed = reduction.end_ns - scheduled_end_ns(reduction.sizes_bytes, reduction.ready_ns, measured)
    tail = scheduled_end_ns(sizes, ready, cost) - reduction.last_ns + missed
    tail = max(tail, cost(float(sizes[-1])))
    hidden = max(0.0, sum(map(cost, sizes.tolist())) - tail)
    recorded_tail = float(reduction.end_ns - reduction.last_ns)
    before = max(0.0, sum(map(measured, reduction.sizes_bytes.tolist())) - recorded_tail)
    return Schedule(tail + interference * max(0.0, hidden - before), hidden)
