"""Python of the script between the phases keeps the device waiting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kineto_run import Script, meet

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.script.alone import Alone
from ddprof.findings import Abstention, Candidate

ID = "host.script"
FORWARD = "torch/nn/modules/module.py(1773): _wrapped_call_impl"


def run(
    folder: Path, own_us: list[float], frames: bool = True, function: str = "train.py(60): update_ema", steps: int = 4
) -> LoadedRun:
    """Ranks that run `own_us` of Python after the optimizer in every step, inside a frame of the script."""
    scripts = [Script() for _ in own_us]
    for number in range(steps):
        begun = [script.now_us for script in scripts]
        for script, own in zip(scripts, own_us, strict=True):
            _step(script, own, frames, function)
        meet(scripts)
        for script, begin in zip(scripts, begun, strict=True):
            script.synchronise()
            script.step(number + 1, begin)
    if frames:
        for script in scripts:
            script.add("train.py(120): main", "python_function", 990.0, script.now_us - 900.0, 1, {})
    facts = [script.facts(folder, rank, len(scripts)) for rank, script in enumerate(scripts)]
    return LoadedRun("made", job_facts(facts), ())


def _step(script: Script, own_us: float, frames: bool, function: str) -> None:
    for name in (FORWARD, "torch/_tensor.py(570): backward", "torch/optim/adamw.py(200): step"):
        if frames:
            with script.frame(name):
                _kernels(script)
        else:
            _kernels(script)
    script.idle(20.0)  # the queue is empty
    if frames:
        with script.frame(function):
            script.idle(own_us)
    else:
        script.idle(own_us)


def _kernels(script: Script) -> None:
    for _ in range(20):
        script.launch(dur_us=50.0)


def said(made: LoadedRun) -> list[Candidate]:
    return [found for found in catalogue()[ID].detect(made.measures) if isinstance(found, Candidate)]


def test_names_the_line_its_share_and_what_to_do(tmp_path: Path) -> None:
    made = run(tmp_path, [6_000.0, 6_000.0])
    (candidate,) = said(made)
    assert candidate.ranks == ()
    assert "train.py:60 update_ema()" in candidate.summary
    assert "per step" in candidate.evidence[0].text
    assert "_foreach_lerp_" in (candidate.fixes[0].patch or "")
    assert made.report.findings[0].id == ID
    assert "train.py:60 update_ema()" in made.report.verdict.headline
    assert "compile" not in made.report.verdict.headline


def test_gains_what_the_device_waits_for_the_line(tmp_path: Path) -> None:
    made = run(tmp_path, [6_000.0, 6_000.0])
    gain = made.report.findings[0].recoverable_us
    assert 0.7 * 3_000.0 < gain.value <= 6_100.0
    assert gain.value <= float(made.measures.cause_us("host_launch").max()) + 1.0


def test_without_frames_it_says_so_and_nothing_else_changes(tmp_path: Path) -> None:
    (abstention,) = catalogue()[ID].detect(run(tmp_path, [6_000.0, 6_000.0], frames=False).measures)
    assert isinstance(abstention, Abstention)
    assert "without Python stacks" in abstention.reason


def test_frames_around_phases_alone_accuse_nobody(tmp_path: Path) -> None:
    assert said(run(tmp_path, [0.0, 0.0])) == []


def test_what_one_rank_runs_is_not_of_the_whole_job(tmp_path: Path) -> None:
    assert said(run(tmp_path, [6_000.0, 0.0, 0.0])) == []


def test_beside_what_one_rank_runs_alone_the_others_count(tmp_path: Path) -> None:
    """Of two ranks the typical one spends enough between the phases; what the other adds to that is its own."""
    measures = run(tmp_path, [6_000.0, 6_000.0]).measures
    (candidate,) = [found for found in catalogue()[ID].detect(measures) if isinstance(found, Candidate)]
    apart = replace(measures, script_us=np.array([60_000.0, measures.script_us[1]]))
    alone = {0: Alone("train.py:7 histograms()", "", 60_000.0, 0.0)}
    (said_of_all,) = catalogue()[ID].detect(replace(apart, alone=alone))
    assert isinstance(said_of_all, Candidate)
    assert said_of_all.lost_us <= 1.01 * candidate.lost_us
    assert list(catalogue()[ID].detect(replace(apart, alone={**alone, 1: alone[0]}))) == []


def test_of_two_ranks_that_run_more_than_twice_as_much_only_one_is_no_job(tmp_path: Path) -> None:
    """Where no line tells that the rank runs it alone, it is late by it all the same, and named for that."""
    measures = run(tmp_path, [6_000.0, 6_000.0]).measures
    typical_us = float(measures.script_us[1])
    apart = replace(measures, script_us=np.array([10 * typical_us, typical_us]), alone={})
    (candidate,) = catalogue()[ID].detect(apart)
    assert isinstance(candidate, Candidate)
    assert candidate.lost_us <= 2.5 * typical_us
    assert {seen.rank for seen in candidate.evidence} <= {1, None}


@pytest.mark.parametrize(
    ("function", "cause"),
    [("train.py(40): tokenize_batch", "dataloader"), ("train.py(88): evaluate", "checkpoint")],
)
def test_preparing_data_and_evaluating_are_not_of_the_script(tmp_path: Path, function: str, cause: str) -> None:
    made = run(tmp_path, [6_000.0, 6_000.0], function=function)
    assert said(made) == []
    assert made.measures.cause_us(cause).min() > 2_000.0


def test_what_hosts_that_run_ahead_hide_on_some_ranks_is_of_all(tmp_path: Path) -> None:
    """Every rank runs the line; in each step the device of one of them has enough to do meanwhile."""
    made = run(tmp_path, [6_000.0, 5_200.0, 4_400.0])
    (candidate,) = said(made)
    assert candidate.ranks == ()
    assert candidate.lost_us > float(made.measures.script_us.mean())  # and what ranks wait for the slowest


def test_a_recording_without_backward_passes_has_them_before_the_optimizer(tmp_path: Path) -> None:
    script = Script()
    for number in range(4):
        begin = script.now_us
        with script.frame("train.py(64): train_step"):
            with script.frame(FORWARD):
                script.launch(dur_us=50.0)
            script.idle(6_000.0)  # on autograd's own thread, which is not in this file
            with script.frame("torch/optim/adamw.py(200): step"):
                script.launch(dur_us=50.0)
        script.synchronise()
        script.step(number + 1, begin)
    made = LoadedRun("made", job_facts([script.facts(tmp_path)]), ())
    assert float(made.measures.launching_us[0]) > 5_000.0
    assert float(made.measures.script_us[0]) == 0.0
