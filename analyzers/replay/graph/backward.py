"""The backward pass of a step: its start, its compute, and the time at which each gradient exists."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ddprof.analyzers.execution.operations import StepMarks
from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.replay.model import RankGraph
from ddprof.tables import Array


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
