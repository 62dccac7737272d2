"""Python of the script between the phases keeps the device waiting."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kineto_run import Script, in_step, loaded
from labelled_runs import abstains, candidate, candidates
from sampled_stacks import totals

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.facts.script.tree import call_tree
from ddprof.analyzers.job.script.alone import Alone

ID = "host.script"
FORWARD = "torch/nn/modules/module.py(1773): _wrapped_call_impl"


def run(folder: Path, own_us: list[float], frames: bool = True, function: str = "train.py(6): update_ema") -> LoadedRun:
    """Ranks that run `own_us` of Python after the optimizer in every step, inside a frame of the script."""

    def work(script: Script, rank: int, step: int) -> None:
        around = script.frame if frames else lambda _: nullcontext()
        for name in (FORWARD, "torch/_tensor.py(570): backward", "torch/optim/adamw.py(200): step"):
            with around(name):
                script.launch(dur_us=50.0, times=20)
        script.idle(20.0)  # the queue is empty
        with around(function):
            script.idle(own_us[rank])

    scripts = in_step(len(own_us), 4, work)
    if frames:
        for script in scripts:
            script.add("train.py(120): main", "python_function", 990.0, script.now_us - 900.0, 1, {})
    return loaded(scripts, folder)


def test_names_the_line_its_share_and_what_to_do(tmp_path: Path) -> None:
    made = run(tmp_path, [6_000.0, 6_000.0])
    (found,) = candidates(ID, made.measures)
    assert found.ranks == () and "train.py:6 update_ema()" in found.summary
    assert "per step" in found.evidence[0].text and "_foreach_lerp_" in (found.fixes[0].patch or "")
    assert made.report.findings[0].id == ID and "train.py:6 update_ema()" in made.report.verdict.headline
    assert "compile" not in made.report.verdict.headline
    gain = made.report.findings[0].recoverable_us
    assert 0.7 * 3_000.0 < gain.value <= 6_100.0
    assert gain.value <= float(made.measures.cause_us("host_launch").max()) + 1.0


def test_needs_frames_and_counts_what_hosts_that_run_ahead_hide_on_some_ranks(tmp_path: Path) -> None:
    assert "without Python stacks" in abstains(ID, run(tmp_path, [6_000.0, 6_000.0], frames=False).measures)
    # Every rank runs the line; in each step the device of one of them has enough to do meanwhile.
    made = run(tmp_path, [6_000.0, 5_200.0, 4_400.0])
    (found,) = candidates(ID, made.measures)
    assert found.ranks == ()
    assert found.lost_us > float(made.measures.script_us.mean())  # and what ranks wait for the slowest
    (found,) = candidates(ID, replace(made.measures, script_us=np.array([6_000.0, 300.0, 100.0])))
    assert found.ranks == () and min(found.times_us) > 4_000.0


@pytest.mark.parametrize("own_us", [[0.0, 0.0], [6_000.0, 0.0, 0.0]], ids=["frames around phases", "one rank"])
def test_what_not_all_ranks_run_is_not_of_the_whole_job(tmp_path: Path, own_us: list[float]) -> None:
    assert candidates(ID, run(tmp_path, own_us).measures) == []


def test_beside_what_one_rank_runs_alone_the_others_count(tmp_path: Path) -> None:
    measures = run(tmp_path, [6_000.0, 6_000.0]).measures
    apart = replace(measures, script_us=np.array([60_000.0, measures.script_us[1]]))
    alone = {0: Alone("train.py:7 histograms()", "", 60_000.0, 0.0)}
    assert candidate(ID, replace(apart, alone=alone)).lost_us <= 1.01 * candidate(ID, measures).lost_us
    assert list(catalogue()[ID].detect(replace(apart, alone={**alone, 1: alone[0]}))) == []
    typical_us = float(measures.script_us[1])
    apart = replace(measures, script_us=np.array([10 * typical_us, typical_us]), alone={})
    found = candidate(ID, apart)
    assert found.lost_us <= 2.5 * typical_us and {seen.rank for seen in found.evidence} <= {1, None}
    near = replace(apart, script_us=np.array([1.9 * typical_us, typical_us]))  # no part of what timers show it late by
    both, own = (candidate(ID, replace(near, timed_us=np.array([us, 0.0]))).lost_us for us in (0.0, typical_us))
    assert own <= both - 0.1 * typical_us


@pytest.mark.parametrize(
    ("phase", "seen", "named"), [("rest", (20, 20), 1), ("rest", (40, 1), 0), ("forward", (40, 1), 0)]
)
def test_what_samples_saw_on_one_rank_alone_is_in_no_price(
    tmp_path: Path, phase: str, seen: tuple[int, int], named: int
) -> None:
    measures = run(tmp_path, [6_000.0, 6_000.0]).measures
    ranks = []
    for facts, count in zip(measures.job.ranks, seen, strict=True):
        tree, spans = call_tree(facts), facts.script_spans
        ema = [tree.names[frame].endswith("update_ema") for frame in tree.frame].index(True)
        sampled = spans.replace(resolution_ns=np.full(len(spans), 1_000))
        ranks.append(
            replace(facts, script_spans=sampled, script_totals=totals((phase, ema, count), ("data", 0, 60 - count)))
        )
    assert len(candidates(ID, replace(measures, job=replace(measures.job, ranks=tuple(ranks))))) == named


@pytest.mark.parametrize(
    ("function", "cause"), [("train.py(40): tokenize_batch", "dataloader"), ("train.py(88): evaluate", "checkpoint")]
)
def test_preparing_data_and_evaluating_are_not_of_the_script(tmp_path: Path, function: str, cause: str) -> None:
    made = run(tmp_path, [6_000.0, 6_000.0], function=function)
    assert candidates(ID, made.measures) == [] and made.measures.cause_us(cause).min() > 2_000.0


def test_a_recording_without_backward_passes_has_them_before_the_optimizer(tmp_path: Path) -> None:
    script = Script()
    for _ in script.steps(4):
        with script.frame("train.py(64): train_step"):
            with script.frame(FORWARD):
                script.launch(dur_us=50.0)
            script.idle(6_000.0)  # on autograd's own thread, which is not in this file
            with script.frame("torch/optim/adamw.py(200): step"):
                script.launch(dur_us=50.0)
        script.synchronise()
    made = loaded([script], tmp_path)
    assert float(made.measures.launching_us[0]) > 5_000.0 and float(made.measures.script_us[0]) == 0.0


def hooked(folder: Path, hook_us: float) -> LoadedRun:
    """Two ranks whose device idles for `hook_us` of each step while a communication hook of the script runs."""

    def work(script: Script, rank: int, step: int) -> None:
        script.launch(dur_us=50.0, times=20)
        script.idle(20.0)
        script.host("ddprof::comm_hook train.py:12 count_large()", hook_us, "user_annotation")

    return loaded(in_step(2, 4, work), folder)


def test_a_slow_hook_is_named_and_priced_and_one_that_only_starts_is_no_finding(tmp_path: Path) -> None:
    made = hooked(tmp_path, 1_500.0)
    said = candidate(ID, made.measures)
    assert "train.py:12 count_large()" in said.summary and said.ranks == ()
    # The queue of the device drains first: what it idles then is the hook's.
    assert made.pricer.gain_us(said) == pytest.approx(float(made.measures.cause_us("host_launch").max()), rel=0.1)
    assert abstains(ID, hooked(tmp_path, 5.0).measures)  # there are no frames, either
