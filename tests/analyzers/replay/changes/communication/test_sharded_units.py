"""Other units, gathers ahead and parameters that are kept: prices against what the trace generator simulates."""

from __future__ import annotations

import pytest
from labelled_runs import Runs

from ddprof.findings import Change

MERGED = Change("merge_units", (), (3.0,))
AHEAD = Change("prefetch_gathers")
KEPT = Change("keep_parameters")


@pytest.mark.parametrize(
    ("name", "change"), [("three units a layer", MERGED), ("gathers when needed", AHEAD), ("comm.sharding", KEPT)]
)
def test_the_price_is_what_the_change_gains(labelled: Runs, name: str, change: Change) -> None:
    run = labelled(name)
    assert run.pricer.step_us((change,)) == pytest.approx(run.label["counterfactual_step_us"], rel=0.02)


@pytest.mark.parametrize(
    ("name", "change"), [("clean.fsdp", AHEAD), ("comm.sharding", AHEAD), ("three units a layer", AHEAD)]
)
def test_gathers_that_are_ahead_gain_nothing(labelled: Runs, name: str, change: Change) -> None:
    run = labelled(name)
    assert run.pricer.step_us((change,)) == pytest.approx(run.measures.step_us, rel=0.005)


def test_changes_of_units_hold_together(labelled: Runs) -> None:
    """Both at once cost no more than each alone."""
    run = labelled("gathers when needed")
    both = run.pricer.step_us((AHEAD, KEPT))
    assert both <= min(run.pricer.step_us((AHEAD,)), run.pricer.step_us((KEPT,))) + 1.0


def test_a_run_without_sharding_stays_as_it_is(labelled: Runs) -> None:
    run = labelled("clean.ddp")
    for change in (MERGED, AHEAD, KEPT):
        assert run.pricer.step_us((change,)) == pytest.approx(run.measures.step_us, rel=1e-6)
