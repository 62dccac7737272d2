"""The backward pass of a step: where it begins on the device, and when each gradient exists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import Phase
from ddprof.analyzers.replay.host_time import running
from ddprof.analyzers.replay.model import RankGraph
from ddprof.tables import Array

BACKWARD_SHARE = 2 / 3  # of a step's compute, where no range tells forward from backward: twice forward's products


@dataclass(frozen=True)
class Gradients:
    """Gradients in the order in which they came: sizes, and times relative to the last one (<= 0), ns."""

    size_bytes: Array
    offset_ns: Array


def step_bounds_ns(rank: RankGraph, step: int) -> tuple[int, int]:
    """Host times between which a step lies, own clock."""
    lo = rank.origin_ns if step == 0 else int(rank.marks_ns[step - 1])
    return lo, int(rank.marks_ns[min(step, len(rank.marks_ns) - 1)])


def backward_start_ns(rank: RankGraph, step: int) -> int:
    """When the device (on a CPU rank: the host) began the last backward pass of a step, own clock."""
    forward_ns, until_ns = _bounds_ns(rank, step)
    lo, _ = step_bounds_ns(rank, step)
    if not rank.facts.is_device_rank:
        return int(lo + (1 - BACKWARD_SHARE) * (until_ns - lo)) if forward_ns is None else forward_ns
    rows = _compute(rank, forward_ns or lo, until_ns)
    if not len(rows):
        return lo if forward_ns is None else until_ns
    if forward_ns is not None:
        return int(rank.ops.start_ns[rows].min())
    done = np.cumsum(rank.ops.dur_ns[rows])
    return int(rank.ops.start_ns[rows[np.searchsorted(done, (1 - BACKWARD_SHARE) * done[-1])]])


def backward_compute_ns(rank: RankGraph) -> Array:
    """Compute (ns) of the last backward pass of each step, shape (steps,): communication can hide behind so much."""
    found = []
    work = running(rank.facts)
    for step in range(len(rank.marks_ns)):
        forward_ns, until_ns = _bounds_ns(rank, step)
        if rank.facts.is_device_rank:
            rows = _compute(rank, step_bounds_ns(rank, step)[0] if forward_ns is None else forward_ns, until_ns)
            found.append(float(rank.ops.dur_ns[rows].sum()) * (BACKWARD_SHARE if forward_ns is None else 1.0))
        else:
            found.append(float(intervals.length(intervals.clip(work, backward_start_ns(rank, step), until_ns))))
    return np.array(found)


def _bounds_ns(rank: RankGraph, step: int) -> tuple[int | None, int]:
    """When the host ended the last forward of a step (None: unknown), and when it began its optimizer (or ended)."""
    lo, hi = step_bounds_ns(rank, step)
    phases = rank.facts.phases
    inside = (phases["start_ns"] >= lo) & (phases["start_ns"] < hi)
    optimizer = phases["start_ns"][inside & (phases["phase"] == Phase.OPTIMIZER)]
    forward = phases["end_ns"][inside & (phases["phase"] == Phase.FORWARD)]
    # Without launches a phase of the host says nothing about when kernels ran.
    known = len(forward) > 0 and rank.has_host
    return int(forward.max()) if known else None, int(optimizer.max()) if len(optimizer) else hi


def _compute(rank: RankGraph, lo_ns: int, hi_ns: int) -> Array:
    """Operations, communication aside, that the host launched between two instants, in order of their start."""
    issued = rank.ops.issued_ns
    rows = np.flatnonzero(~rank.ops.is_comm & (issued >= lo_ns) & (issued < hi_ns))
    return rows[np.argsort(rank.ops.start_ns[rows], kind="stable")]


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
    if rank.facts.is_device_rank:
        rows = np.flatnonzero(~rank.ops.is_comm)
        rows = rows[np.argsort(rank.ops.launch_ns[rows], kind="stable")]
        at = np.searchsorted(rank.ops.launch_ns[rows], ready) - 1
        if len(rows) and (at >= 0).all() and ready[-1] < rank.marks_ns[-1]:
            ready = np.maximum.accumulate((rank.ops.start_ns + rank.ops.dur_ns)[rows[at]])
    return Gradients(sizes, (ready - ready[-1]).astype(float))
