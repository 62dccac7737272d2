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


@pytest.mark.parametrize(
    ("name", "change", "compute", "transfer"),
    [
        ("comm.bandwidth_bound", Change("no_sync"), 1.0, 1.0),
        ("comm.bandwidth_bound", Change("scale_transfer", (), (0.5,)), 1.0, 0.0),
        ("comm.bandwidth_bound", Change("scale_compute", (), (2.0,)), 0.5, 1.0),
        ("CPU rank", Change("scale_compute", (), (4.0,)), 0.25, 0.0),  # without the operators that it removes
    ],
)
def test_the_floor_is_compute_as_a_change_leaves_it_and_transfers_that_it_leaves_alone(
    labelled: Runs, tmp_path: Path, name: str, change: Change, compute: float, transfer: float
) -> None:
    prices = (run_of([cpu_loop(tmp_path)]) if name == "CPU rank" else labelled(name)).pricer
    compute_us, transfer_us = (float(prices.measures.cause_us(c).mean()) for c in ("compute", "comm_transfer"))
    floor_us = compute * compute_us + transfer * transfer_us
    assert prices.floor_us((change,)) == pytest.approx(floor_us, rel=1e-3)
    assert prices.step_us((change,)) >= floor_us


def test_a_window_that_opens_late_on_a_rank_that_nobody_waits_for_costs_nothing(tmp_path: Path) -> None:
    """Each step of rank 0 is marked later by what it alone does at its end; its peer waits for it from the start."""
    scripts = [Script(now_us=31_000.0), Script()]
    for step in range(5):
        begins = [script.now_us for script in scripts]
        for script in scripts:
            script.launch(dur_us=400.0)
        meet(scripts)
        for script, begin, idle_us in zip(scripts, begins, (30_000.0, 0.0), strict=True):
            script.synchronise()
            script.idle(idle_us)
            script.step(step + 1, begin)
    assert 400.0 <= loaded(scripts, tmp_path).pricer.step_us((Change("on_time", (0,)),)) <= 600.0


def test_changes_combine_in_any_order_and_one_twice_is_that_change(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    prices, first, second = run.pricer, Change("scale_compute", (2,), (1.3,)), Change("no_sync")
    assert prices.step_us((first, second)) == prices.step_us((second, first))
    assert prices.step_us((first, second)) <= min(prices.step_us((first,)), prices.step_us((second,))) * (1 + 1e-6)
    once, twice = (scenario_of(changes, prices.graph, run.measures) for changes in ((first,), (first, first)))
    assert np.array_equal(once.dur_ns[2], twice.dur_ns[2])
