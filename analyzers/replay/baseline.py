"""What gains are measured against: a replay whose step was measured, of the profiled or of the unprofiled run."""

from __future__ import annotations

from dataclasses import dataclass

from ddprof.analyzers.replay.model import Graph, Scenario
from ddprof.analyzers.replay.simulate import Outcome


@dataclass(frozen=True, eq=False)
class Baseline:
    """A run as it was: what it alters of the recording, how its replay came out, and the step measured in it (us)."""

    scenario: Scenario
    outcome: Outcome
    step_us: float

    def under(self, graph: Graph, scenario: Scenario, as_peers: frozenset[int]) -> Scenario:
        """The scenario in this run. `as_peers`: positions of ranks that do in it what their peers do."""
        return scenario
