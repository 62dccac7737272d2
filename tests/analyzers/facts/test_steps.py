"""Steps of a rank: those that the profiler marked, one after another."""

from __future__ import annotations

import pytest
from corpus import SCENARIOS
from labelled_runs import Runs

NAMES = ("clean.ddp", "clean.fsdp", "clean.pp", "host.gc", "input.starved", "comm.slow_link")


@pytest.mark.parametrize("name", NAMES)
def test_steps_follow_one_another(labelled: Runs, name: str) -> None:
    scenario = SCENARIOS[name]
    for facts in labelled(name).job.ranks:
        steps = facts.steps
        assert facts.step_source == "profiler_step"
        assert steps["index"].tolist() == [scenario.first_step + i for i in range(scenario.steps)]
        assert (steps["start_ns"][1:] == steps["end_ns"][:-1]).all()
