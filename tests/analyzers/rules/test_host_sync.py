"""Blocking calls inside the step, and who makes them."""

from __future__ import annotations

import pytest
from labelled_runs import Runs, fires

ID = "host.sync"


def test_names_the_calls_and_the_idle_time(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == ()
    assert said.fixes[0].current
    assert said.lost_us == pytest.approx(labelled(ID).label["ledger"]["job"]["host_sync"], rel=0.02)


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []
