"""Host time of a rank in a scenario: the factor of each part, and the resulting time of each instant."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ddprof import intervals
from ddprof.analyzers.execution.operations import NEVER
from ddprof.analyzers.replay.model import Contracted, RankGraph, Scenario
from ddprof.intervals import Intervals
from ddprof.tables import Array

LEVELS = 40  # factors told apart between 0 and 1

Scaled = tuple[tuple[Intervals, float], ...]


def by_level(spans: Intervals, factor: Array) -> Scaled:
    """Spans of one level together, with its factor; those of about 1 are left out."""
    level = np.rint(factor * LEVELS)
    return tuple(
        ((spans[0][level == value], spans[1][level == value]), float(value / LEVELS))
        for value in np.unique(level)
        if value != LEVELS
    )


def on_top(scaled: Scaled, more: Scaled) -> Scaled:
    """Both scalings: time in a part of each is scaled by the product. The resulting parts are disjoint."""
    parts: list[tuple[Intervals, float]] = []
    for spans, factor in (*scaled, *more):
        rest = intervals.union(*spans)
        split: list[tuple[Intervals, float]] = []
        for part, share in parts:
            both = intervals.intersect(part, rest)
            split += [(both, share * factor), (intervals.subtract(part, rest), share)]
            rest = intervals.subtract(rest, part)
        parts = _joined([*split, (rest, factor)])
    return tuple(parts)


def _joined(parts: list[tuple[Intervals, float]]) -> list[tuple[Intervals, float]]:
    """Parts of the same share as one."""
    alike: dict[float, list[Intervals]] = defaultdict(list)
    for spans, share in parts:
        if len(spans[0]):
            alike[round(share, 4)].append(spans)
    return [(intervals.merge(*spans), share) for share, spans in alike.items()]


class HostTimeline:
    """Host instants of one rank in a scenario: a span that gets shorter or longer moves everything after it."""

    def __init__(self, rank: RankGraph, scenario: Scenario) -> None:
        self._begins = np.concatenate(([rank.origin_ns], rank.anchors.end_ns)).astype(np.int64)
        scaled = tuple(
            (intervals.union(*spans), factor) for spans, factor in scenario.host_scale.get(rank.position, ())
        )
        each = intervals.EMPTY, *(spans for spans, _ in scaled)
        # Two changes may scale the same time: what the one removes is not there for the other.
        is_shared = sum(map(intervals.length, each)) > intervals.length(intervals.merge(*each))
        self._scaled = on_top((), scaled) if is_shared else scaled

    def _passed(self, at_ns: Array) -> Array:
        passed = at_ns.astype(np.int64)
        for spans, factor in self._scaled:
            passed = passed - np.round((1.0 - factor) * intervals.covered(spans, at_ns)).astype(np.int64)
        return passed

    def offset(self, at_ns: Array, section: Array) -> Array:
        """Host time from the beginning of its section to each instant."""
        return self._passed(at_ns) - self._passed(self._begins)[section] if len(at_ns) else at_ns.astype(np.int64)

    def simulated(self, at_ns: Array, begun_ns: Array) -> Array:
        """Instants of the recording as times in the scenario; `begun_ns`: the start of each section there."""
        section = np.maximum(np.searchsorted(self._begins, at_ns, side="right") - 1, 0)
        return np.asarray(begun_ns[section] + self.offset(at_ns, section))

    def locate(self, at_ns: Array) -> tuple[list[int], list[int]]:
        """Segment and offset of host instants such as step marks."""
        section = np.maximum(np.searchsorted(self._begins, at_ns, side="right") - 1, 0)
        return section.tolist(), self.offset(at_ns, section).tolist()


# Contraction of a scenario to one rank's nodes: a chain of operations becomes two numbers (max-plus).


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
