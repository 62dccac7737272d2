"""The cost of launching: what every step has, and not what one slow step alone or an old profiler costs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cpu_loop import Chore, cpu_loop, operators
from kineto_run import Script, in_step, loaded
from labelled_runs import abstains, candidate, candidates, on_every_rank, run_of

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.work import LOOPED_SHARE

ID = "host.launch_bound"


def run(folder: Path, *slow_steps: int) -> Measures:
    """Six steps of 40 launches, and kernels that keep the device busy but where each call is 60 us slower."""
    script = Script()
    for step in script.steps(6):
        for _ in range(40):
            script.launch(dur_us=20.0)
            script.host("aten::view", 60.0 if step in slow_steps else 1.0)
    return loaded([script], folder).measures


def test_a_host_that_is_slower_in_one_step_alone_is_not_launch_bound(tmp_path: Path) -> None:
    assert candidates(ID, run(tmp_path, 3)) == []
    for slow in ((1, 4), (0, 2, 4), range(6)):  # every third, every second, every step
        assert candidate(ID, run(tmp_path, *slow)).lost_us > 0


def test_a_recording_with_shapes_is_said_to_slow_the_host(tmp_path: Path) -> None:
    measures = run(tmp_path, *range(6))
    shaped = on_every_rank(measures, top={**measures.job.ranks[0].top, "record_shapes": 1})
    assert "record_shapes slows the host" in candidate(ID, shaped).evidence[1].text
    assert not any("slows the host" in seen.text for seen in candidate(ID, measures).evidence)


def test_what_an_old_profiler_costs_the_host_is_no_gain(tmp_path: Path) -> None:
    measures = run(tmp_path, *range(6))
    (facts,) = measures.job.ranks

    def recorded(operators: int) -> Measures:
        counts = {**facts.counts, "operators_per_step": operators}
        return on_every_rank(measures, top={**facts.top, "categories": {"Operator": 1}}, counts=counts)

    new, old = candidate(ID, measures), candidate(ID, recorded(80))
    assert new.ceiling_us - old.ceiling_us == pytest.approx(4.0 * 80) and "old profiler" in old.evidence[1].text
    assert "this old profiler" in abstains(ID, recorded(600))


@pytest.mark.parametrize(("busy", "paces"), [((0.88, 0.96, 0.97, 0.98), True), ((0.8, 0.85, 0.96, 0.97), False)])
def test_busy_hosts_that_wait_for_the_last_are_launching(tmp_path: Path, busy: tuple[float, ...], paces: bool) -> None:
    """Only one device idles itself, the others wait for it: so do eight GPUs of a job that is bound by its hosts."""

    def work(script: Script, rank: int, step: int) -> None:
        for _ in range(40):
            script.launch(dur_us=60.0)
            script.idle(70.0 if rank == 0 else 45.0)

    measures = loaded(in_step(4, 5, work), tmp_path).measures
    host = replace(measures.host, time_us=measures.step_us * np.array(busy))
    found = candidates(ID, replace(measures, host=host, launching_us=measures.launching_us * [1, 0, 0, 0]))
    assert bool(found) == paces


def one_by_one(calls: int, parameters: int, dur_us: float) -> Chore:
    """A loss of so many calls, with 10 us of Python after each, and gradients of so many parameters."""

    def chore(script: Script) -> None:
        operators(script, "cross_entropy_loss", count=calls, dur_us=dur_us)
        for _ in range(parameters):
            script.host("torch::autograd::AccumulateGrad", 5.0)

    return chore


@pytest.mark.parametrize(
    ("calls", "parameters", "dur_us", "is_told"),
    [(80, 5, 10.0, True), (80, 90, 10.0, False), (40, 5, 10.0, False), (80, 5, 400.0, False), (80, 0, 10.0, False)],
)
def test_short_operators_of_a_loop_are_told_on_cpu_ranks(
    tmp_path: Path, calls: int, parameters: int, dur_us: float, is_told: bool
) -> None:
    run = run_of([cpu_loop(tmp_path, after=one_by_one(calls, parameters, dur_us))])
    told = candidates(ID, run.measures)
    assert [one.ranks for one in told] == [()] * is_told
    for one in told:
        assert "calls 80 operators per step one by one" in one.summary
        assert one.lost_us == pytest.approx((1 - LOOPED_SHARE) * calls * (dur_us + 10.0), rel=0.02)
        assert run.pricer.gain_us(one) == pytest.approx(one.lost_us, rel=0.05)


@pytest.mark.parametrize(("optimizer", "is_told"), [("RowNorm", True), ("SGD", False)])
def test_a_loop_in_the_step_of_the_scripts_own_optimizer_is_told(tmp_path: Path, optimizer: str, is_told: bool) -> None:
    def chore(script: Script) -> None:
        with script.frame(f"Optimizer.step#{optimizer}.step", "user_annotation"):
            operators(script, "div", count=80)

    run = run_of([cpu_loop(tmp_path, after=one_by_one(0, 5, 1.0), optimizer=chore)])
    assert bool(candidates(ID, run.measures)) == is_told


def test_a_loop_of_one_rank_is_not_the_whole_jobs(tmp_path: Path) -> None:
    ranks = [cpu_loop(tmp_path, after=one_by_one(80 if rank == 1 else 0, 5, 10.0), rank=rank) for rank in range(4)]
    assert candidates(ID, run_of(ranks).measures) == []


def test_indices_of_a_loop_whose_gradients_fill_whole_tensors_are_told(tmp_path: Path) -> None:
    def chore(script: Script) -> None:
        for name, count, dur_us in (("select", 40, 5.0), ("select_backward", 40, 400.0)):
            operators(script, name, count=count, dur_us=dur_us)
        for _ in range(5):
            script.host("torch::autograd::AccumulateGrad", 5.0)

    [one] = candidates(ID, run_of([cpu_loop(tmp_path, after=chore)]).measures)
    assert "aten::select_backward is called 40 times per step" in one.evidence[1].text
    assert "unbind" in one.fixes[0].suggested


def test_nodes_of_an_operator_that_loops_inside_are_not_the_scripts_loop(tmp_path: Path) -> None:
    def chore(script: Script) -> None:
        for name, count in (("AddmmBackward0", 80), ("torch::autograd::AccumulateGrad", 5)):
            for _ in range(count):
                script.host(f"autograd::engine::evaluate_function: {name}", 20.0)

    assert candidates(ID, run_of([cpu_loop(tmp_path, after=chore)]).measures) == []
