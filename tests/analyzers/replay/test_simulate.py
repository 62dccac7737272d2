"""A replay without a change is the recorded run."""

import pytest
from labelled_runs import Runs

from ddprof.analyzers.replay.model import Scenario
from ddprof.analyzers.replay.simulate import simulate

NAMES = ("clean.ddp", "clean.fsdp", "clean.pp", "straggler.compute")


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_scenario_changes_nothing(labelled: Runs, name: str) -> None:
    graph = labelled(name).pricer.graph
    assert simulate(graph, Scenario()).span_ns == simulate(graph).span_ns
    assert simulate(graph, Scenario() + Scenario()).marks_ns == simulate(graph).marks_ns
