"""Volume too large for the link though it overlaps."""

from __future__ import annotations

import pytest
from labelled_runs import Runs, fires

ID = "comm.bandwidth_bound"


def test_blames_the_volume_and_no_rank(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == ()
    assert any("compress" in f"{fix.setting} {fix.suggested} {fix.patch}" for fix in said.fixes)


def test_half_the_bytes_give_the_predicted_step(labelled: Runs) -> None:
    run = labelled(ID)
    (fault,) = run.label["faults"]
    predicted = run.pricer.step_us(fires(run, ID).changes)
    assert predicted == pytest.approx(fault["counterfactual_step_us"], rel=0.03)


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []
