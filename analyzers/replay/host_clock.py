"""Host time of one rank as it passes in a scenario."""

from __future__ import annotations

import numpy as np

from ddprof import intervals
from ddprof.analyzers.replay.model import RankGraph, Scenario
from ddprof.intervals import Intervals
from ddprof.tables import Array


class HostClock:
    """Spans that the scenario shortens or stretches move everything after them."""

    def __init__(self, rank: RankGraph, scenario: Scenario) -> None:
        self._begins = np.concatenate(([rank.origin_ns], rank.anchors.end_ns)).astype(np.int64)
        self._scaled: list[tuple[Intervals, float]] = []
        for spans, factor in scenario.host_scale.get(rank.position, ()):
            self._scaled.append((intervals.union(*spans), factor))

    def _passed(self, at_ns: Array) -> Array:
        passed = at_ns.astype(np.int64)
        for spans, factor in self._scaled:
            passed = passed - np.round((1.0 - factor) * intervals.covered(spans, at_ns)).astype(np.int64)
        return passed

    def offset(self, at_ns: Array, segment: Array) -> Array:
        """Host time from the beginning of its segment to each instant."""
        return self._passed(at_ns) - self._passed(self._begins)[segment] if len(at_ns) else at_ns.astype(np.int64)

    def simulated(self, at_ns: Array, begun_ns: Array) -> Array:
        """Instants of the recording as they come in the scenario; `begun_ns`: when each segment began there."""
        segment = np.maximum(np.searchsorted(self._begins, at_ns, side="right") - 1, 0)
        return np.asarray(begun_ns[segment] + self.offset(at_ns, segment))

    def locate(self, at_ns: Array) -> tuple[list[int], list[int]]:
        """Segment and offset of host instants such as step marks."""
        segment = np.maximum(np.searchsorted(self._begins, at_ns, side="right") - 1, 0)
        return segment.tolist(), self.offset(at_ns, segment).tolist()
