"""One slow device: named with its factor, priced by making it as fast as its peers."""

from __future__ import annotations

import pytest
from labelled_runs import Runs, abstains, fires

ID = "straggler.compute"


def test_names_the_slow_device_and_its_factor(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == (2,)
    (change,) = said.changes
    assert change.kind == "scale_compute"
    assert change.values[0] == pytest.approx(1.3, abs=0.03)


def test_price_is_the_step_without_the_slow_device(labelled: Runs) -> None:
    run = labelled(ID)
    (fault,) = run.label["faults"]
    predicted = run.pricer.step_us(fires(run, ID).changes)
    assert predicted == pytest.approx(fault["counterfactual_step_us"], rel=0.03)


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp", "clean.tpdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []


def test_abstains_with_one_rank(labelled: Runs) -> None:
    assert "only one rank" in abstains(ID, labelled(ID).only(0))
