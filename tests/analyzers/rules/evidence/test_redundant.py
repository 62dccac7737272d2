"""Calls that need not be: a metric over gathered values goes with them, a pass is told by the line that calls it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cpu_loop import cpu_loop
from kineto_run import Script
from labelled_runs import Runs, run_of
from sampled_stacks import totals, with_stacks

from ddprof.analyzers.job.traffic.redundant import METRICS
from ddprof.analyzers.rules.evidence.redundant.candidates import share_on_gathered
from ddprof.analyzers.rules.evidence.redundant.lines import line_of_pass


def metric_and_log(script: Script) -> None:
    with script.frame("train.py(60): update"):
        with script.frame("train.py(50): gather_all"):
            script.idle(1_000.0)
        script.idle(2_000.0)
    with script.frame("train.py(80): note"):
        script.idle(1_000.0)


def test_only_a_call_that_gathers_goes_with_what_it_gathers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measures = run_of([cpu_loop(tmp_path, after=metric_and_log, rank=rank) for rank in range(2)]).measures
    assert share_on_gathered(measures, 0) == 0.0
    needless: Any = {METRICS: None}
    lines = ["train.py:50 gather_all(), in all_gather_object()"]
    monkeypatch.setattr("ddprof.analyzers.rules.evidence.redundant.candidates.called_at", lambda *_: lines)
    assert share_on_gathered(replace(measures, needless=needless), 0) == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize(
    ("phase", "samples", "said"),
    [
        *(("backward", 9, ["train.py:39 main()"]), ("forward", 9, ["train.py:37 main()"])),
        ("backward", 2, []),  # chance
        ("", 9, []),
    ],
)
def test_the_line_of_the_loop_calls_the_pass(labelled: Runs, phase: str, samples: int, said: list[str]) -> None:
    module = ("torch/nn/modules/module.py", 1, "_call_impl", 0)
    forward = ("train.py", 37, "main", None), module, ("model.py", 5, "forward", 1)
    backward = ("train.py", 39, "main", None), ("torch/_tensor.py", 2, "backward", 3)
    facts = with_stacks(labelled("clean.ddp").job.ranks[0], *forward, *backward)
    seen = totals(("forward", 2, samples), ("backward", 4, samples))
    assert line_of_pass(replace(facts, script_totals=seen), phase) == said
