"""A metric over values that need not be gathered goes with them, and nothing else of the loop does."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cpu_loop import cpu_loop
from kineto_run import Script
from labelled_runs import run_of

from ddprof.analyzers.job.traffic.redundant import METRICS
from ddprof.analyzers.rules.evidence.redundant.candidates import share_on_gathered


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
