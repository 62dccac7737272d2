"""One slow host: the rank that launches late, whatever its device does."""

from __future__ import annotations

import pytest
from labelled_runs import Runs, abstains, fires

ID = "straggler.host"


def test_names_the_slow_host(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == (1,)
    assert said.lost_us > 0


def test_a_slow_device_is_not_a_slow_host(labelled: Runs) -> None:
    assert labelled("straggler.compute").said(ID) == []


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp", "clean.tpdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []


def test_abstains_with_one_rank(labelled: Runs) -> None:
    assert "only one rank" in abstains(ID, labelled(ID).only(0))
