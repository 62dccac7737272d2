"""Steps of a rank: those that the profiler marked, one after another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from corpus import SCENARIOS
from labelled_runs import Runs

from ddprof.analyzers.facts.steps import find_steps
from ddprof.readers import Source, read

NAMES = ("clean.ddp", "clean.fsdp", "clean.pp", "host.gc", "input.starved", "comm.slow_link")


@pytest.mark.parametrize("name", NAMES)
def test_steps_follow_one_another(labelled: Runs, name: str) -> None:
    scenario = SCENARIOS[name]
    for facts in labelled(name).job.ranks:
        steps = facts.steps
        assert facts.step_source == "profiler_step"
        assert steps["index"].tolist() == [scenario.first_step + i for i in range(scenario.steps)]
        assert (steps["start_ns"][1:] == steps["end_ns"][:-1]).all()


@pytest.mark.parametrize("number", ["9" * 20, "9" * 6000])
def test_a_mark_whose_number_no_counter_reaches_is_a_step_all_the_same(tmp_path: Path, number: str) -> None:
    names = ["ProfilerStep#7", f"ProfilerStep#{number}", "ProfilerStep#9"]
    mark = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "dur": 100}
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{**mark, "name": name, "ts": 100 * at} for at, name in enumerate(names)]))
    steps, *_ = find_steps(read(Source(str(path), "kineto")))
    assert steps["index"].tolist() == [7, 8, 9]
