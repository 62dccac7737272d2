"""Gains of changes are never negative, are within their range, and agree with the generator."""

from pathlib import Path

import numpy as np
import pytest
from cpu_loop import cpu_loop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_run import Script, loaded, meet
from labelled_runs import Runs, run_of

from ddprof.analyzers.replay.price import scenario_of
from ddprof.findings import Basis, Candidate, Change


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(factor=st.floats(1.0, 4.0))
def test_faster_kernels_never_make_the_step_longer(labelled: Runs, factor: float) -> None:
    prices = labelled("clean.ddp").pricer
    slower, faster = (prices.step_us((Change("scale_compute", (), (f,)),)) for f in (factor, factor * 1.5))
    assert faster <= slower * (1 + 1e-6) <= prices.measures.step_us * (1 + 2e-6)


@pytest.mark.parametrize(
    ("name", "change", "truth", "within"),
    [
        ("straggler.compute", Change("scale_compute", (2,), (1.3,)), "counterfactual_step_us", 0.03),
        ("straggler.compute", Change("scale_compute", (0,), (1.3,)), "step_us", 0.02),  # nobody waits for it
        ("comm.bandwidth_bound", Change("scale_transfer", (), (0.0,)), "comm_free_step_us", 0.03),
    ],
)
def test_the_generators_step_after_it(labelled: Runs, name: str, change: Change, truth: str, within: float) -> None:
    run = labelled(name)
    assert run.pricer.step_us((change,)) == pytest.approx(run.label[truth], rel=within)


def test_gains_keep_to_their_ceiling(labelled: Runs) -> None:
    prices = labelled("straggler.compute").pricer
    slower = Candidate("x", "", 0.0, Basis.RECORDED, (), (Change("scale_compute", (), (0.5,)),))
    capped = Candidate("x", "", 0.0, Basis.RECORDED, (), (Change("scale_compute", (2,), (1.3,)),), ceiling_us=100.0)
    assert (prices.gain_us(slower), prices.gain_us(capped)) == (0.0, 100.0)


def test_the_floor_is_compute_as_the_changes_leave_it_and_transfers_that_they_leave_alone(labelled: Runs) -> None:
    prices = labelled("comm.bandwidth_bound").pricer
    compute_us, transfer_us = (float(prices.measures.cause_us(c).mean()) for c in ("compute", "comm_transfer"))
    for change, floor_us in (
        (Change("no_sync"), compute_us + transfer_us),
        (Change("scale_transfer", (), (0.5,)), compute_us),
        (Change("scale_compute", (), (2.0,)), compute_us / 2 + transfer_us),
    ):
        assert prices.floor_us((change,)) == pytest.approx(floor_us, rel=1e-3)
        assert prices.step_us((change,)) >= floor_us


def test_the_floor_of_a_cpu_rank_lacks_the_operators_that_the_changes_remove(tmp_path: Path) -> None:
    prices = run_of([cpu_loop(tmp_path)]).pricer
    change = Change("scale_compute", (), (4.0,))
    floor_us = float(prices.measures.cause_us("compute").mean()) / 4
    assert prices.floor_us((change,)) == pytest.approx(floor_us, rel=1e-3)
    assert prices.step_us((change,)) >= floor_us


def test_a_window_that_opens_late_on_a_rank_that_nobody_waits_for_costs_nothing(tmp_path: Path) -> None:
    """Each step of rank 0 is marked later by what it alone does at its end; its peer waits for it from the start."""
    scripts = [Script() for _ in range(2)]
    scripts[0].idle(30_000.0)
    for step in range(5):
        begins = [script.now_us for script in scripts]
        for script in scripts:
            script.launch(dur_us=400.0)
        meet(scripts)
        for script, begin in zip(scripts, begins, strict=True):
            script.synchronise()
            script.idle(30_000.0 if script is scripts[0] else 0.0)
            script.step(step + 1, begin)
    assert 400.0 <= loaded(scripts, tmp_path).pricer.step_us((Change("on_time", (0,)),)) <= 600.0


def test_changes_combine_in_any_order_and_one_twice_is_that_change(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    prices, first, second = run.pricer, Change("scale_compute", (2,), (1.3,)), Change("no_sync")
    assert prices.step_us((first, second)) == prices.step_us((second, first))
    assert prices.step_us((first, second)) <= min(prices.step_us((first,)), prices.step_us((second,))) * (1 + 1e-6)
    once, twice = (scenario_of(changes, prices.graph, run.measures) for changes in ((first,), (first, first)))
    assert np.array_equal(once.dur_ns[2], twice.dur_ns[2])
