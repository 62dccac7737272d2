"""Saving inside a step stops everybody."""

from __future__ import annotations

import pytest
from labelled_runs import Runs, fires

ID = "host.checkpoint"


def test_suggests_asynchronous_saving(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == ()
    assert "async" in str(said.fixes[0].patch)
    assert said.lost_us == pytest.approx(labelled(ID).label["ledger"]["job"]["checkpoint"], rel=0.02)


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []
