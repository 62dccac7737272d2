"""What keeps a rank busy, whether its device is an accelerator or the host thread itself."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.gaps import busy
from ddprof.analyzers.facts.model import CAUSE, Phase, RankFacts, Work
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array, Table

FULL_QUEUE_NS = 300_000  # a launch call normally takes ~3 us; this long means the queue was full


def host_work(facts: RankFacts) -> Intervals:
    """When an operator runs on the training threads of a CPU rank; nothing on a device rank."""
    return facts.host_work["start_ns"], facts.host_work["end_ns"]


def free_host(facts: RankFacts) -> Intervals:
    """When the host is free to run: not blocked, loading, collecting, allocating or saving.

    On a CPU rank that is between its operators.
    """
    if not facts.is_device_rank:
        mine = facts.gaps["cause"] == CAUSE["host_launch"]
        return facts.gaps["start_ns"][mine], facts.gaps["end_ns"][mine]
    if not len(facts.steps):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    spans, ops = facts.host_spans, facts.device_ops
    slow = blocked_launches(ops)
    start = np.concatenate((spans["start_ns"], ops["launch_ns"][slow]))
    end = np.concatenate((spans["end_ns"], ops["launch_end_ns"][slow]))
    lo, hi = int(facts.steps["start_ns"][0]), int(facts.steps["end_ns"][-1])
    return intervals.complement(intervals.union(start, end), lo, hi)


def compute_work(facts: RankFacts) -> Intervals:
    """When the rank computes: kernels of its device, or the operators of a CPU rank."""
    return busy(facts.device_ops, Work.COMPUTE) if facts.is_device_rank else host_work(facts)


def issued_ns(table: Table) -> Array:
    """When each operation or communication was launched; where no launch is known, when it started."""
    return np.asarray(np.where(table["launch_ns"] == NULL, table["start_ns"], table["launch_ns"]))


def blocked_launches(ops: Table) -> Array:
    """Which operations were launched by a call that blocked for a full queue, bool of shape (device_ops,)."""
    return np.asarray((ops["launch_ns"] != NULL) & (ops["launch_end_ns"] - ops["launch_ns"] > FULL_QUEUE_NS))


def launched_in(facts: RankFacts, phase: Phase) -> Array:
    """Which operations were launched inside ranges of a phase, bool of shape (device_ops,)."""
    launch, mine = facts.device_ops["launch_ns"], facts.phases["phase"] == phase
    start, end = intervals.union(facts.phases["start_ns"][mine], facts.phases["end_ns"][mine])
    if not len(start):
        return np.zeros(len(launch), bool)
    at = np.searchsorted(start, launch, side="right") - 1
    return np.asarray((launch != NULL) & (at >= 0) & (end[np.maximum(at, 0)] >= launch))
