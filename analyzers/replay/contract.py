"""Contraction of a scenario to one rank's nodes: a chain of operations becomes two numbers (max-plus)."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.execution.operations import NEVER
from ddprof.analyzers.replay.host_time import HostTimeline
from ddprof.analyzers.replay.model import Contracted, RankGraph, Scenario


def contract(rank: RankGraph, scenario: Scenario, clock: HostTimeline) -> Contracted:
    """The rank's nodes in the scenario; `clock`: its host there."""
    ops, anchors, first, last, p = rank.ops, rank.anchors, rank.node_first, rank.node_last, rank.position
    dur = scenario.dur_ns.get(p, ops.dur_ns)
    queue = scenario.queue_ns.get(p, ops.queue_lag_ns)
    transfer = scenario.transfer_ns.get(p, ops.transfer_ns)
    offset = np.where(ops.launch_ns == NEVER, NEVER, clock.offset(ops.launch_ns, ops.section) + ops.launch_lag_ns)
    if len(first):
        work = dur + queue
        total = np.add.reduceat(work, first) - queue[first]
        # Time from an operation's start to the end of its chain: durations and lags that follow.
        tail = np.cumsum(work[::-1])[::-1]
        beyond = np.append(tail[1:], 0)[last]
        to_end = tail - queue - beyond[ops.node]
        launch_bound = np.maximum.reduceat(np.where(offset == NEVER, NEVER, offset + to_end), first)
    else:
        total = launch_bound = np.empty(0, np.int64)
    call = clock.offset(anchors.start_ns, np.arange(len(anchors.start_ns)))
    return Contracted(
        queue=np.concatenate((queue[first], queue[first], np.zeros(len(call), np.int64))),
        take=np.concatenate((total, transfer[first], call)),
        host=np.concatenate((launch_bound, offset[first], anchors.tail_ns)),
    )


def is_changed(rank: RankGraph, scenario: Scenario) -> bool:
    """True where the scenario affects the rank's nodes."""
    p = rank.position
    return any(p in change for change in (scenario.dur_ns, scenario.queue_ns, scenario.transfer_ns)) or bool(
        scenario.host_scale.get(p)
    )
