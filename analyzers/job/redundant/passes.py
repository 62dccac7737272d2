"""Forward and backward passes and optimizer steps of a rank's host, and the communications each called."""

from __future__ import annotations

from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.work import issued_ns
from ddprof.intervals import Intervals
from ddprof.tables import Array


class HostPasses(Struct, frozen=True):
    """Outermost passes of one phase, in order: starts and ends on the host, ns on the rank's own clock."""

    spans: Intervals

    def __len__(self) -> int:
        return len(self.spans[0])

    def of(self, at_ns: Array) -> Array:
        """Index of the pass around each moment; -1 for none."""
        return intervals.row_at(self.spans, at_ns)

    def calling(self, facts: RankFacts) -> Array:
        """Index of the pass that called each communication of the rank; -1 for none; int64, shape (comms,)."""
        return self.of(issued_ns(facts.comms))


def passes_of(facts: RankFacts, phase: Phase) -> HostPasses:
    """The outermost passes of a phase; backward passes also from autograd's engine."""
    marked = facts.phases.take(facts.phases["phase"] == phase)
    if phase == Phase.BACKWARD and not len(marked):
        return HostPasses(facts.engine_passes.bounds)
    return HostPasses(intervals.union(*marked.bounds))


def called_by_host(facts: RankFacts, rows: Array) -> Intervals:
    """Intervals of the host in calls that launch some communications (mask, shape (comms,))."""
    comms = facts.comms.take(rows)
    return intervals.union(comms["launch_ns"], comms["launch_end_ns"])  # both are missing, and equal, without a call
