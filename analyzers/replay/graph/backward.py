"""The backward pass of a step: where it begins on the device, and when each gradient exists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.facts.model import Phase
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
    lo, hi = step_bounds_ns(rank, step)
    phases = rank.facts.phases
    inside = (phases["start_ns"] >= lo) & (phases["start_ns"] < hi)
    optimizer = phases["start_ns"][inside & (phases["phase"] == Phase.OPTIMIZER)]
    forward = phases["end_ns"][inside & (phases["phase"] == Phase.FORWARD)]
    until = int(optimizer.max()) if len(optimizer) else hi
    if not rank.facts.is_device_rank:
        return int(forward.max()) if len(forward) else int(lo + (1 - BACKWARD_SHARE) * (until - lo))
    compute = ~rank.ops.is_comm & (rank.ops.launch_ns >= lo) & (rank.ops.launch_ns < until)
    if len(forward):
        compute &= rank.ops.launch_ns >= forward.max()
        return int(rank.ops.start_ns[compute].min()) if compute.any() else until
    rows = np.flatnonzero(compute)
    if not len(rows):
        return lo
    rows = rows[np.argsort(rank.ops.start_ns[rows], kind="stable")]
    done = np.cumsum(rank.ops.dur_ns[rows])
    return int(rank.ops.start_ns[rows[np.searchsorted(done, (1 - BACKWARD_SHARE) * done[-1])]])


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
