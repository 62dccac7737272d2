"""Unequal work whose victim changes from step to step: the data and not a device."""

from __future__ import annotations

import pytest
from labelled_runs import Runs, abstains, fires

ID = "straggler.imbalance"


def test_blames_no_rank_where_the_slowest_changes(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == ()
    assert said.changes[0].kind == "balance_compute"


def test_a_steady_straggler_is_not_imbalance(labelled: Runs) -> None:
    assert labelled("straggler.compute").said(ID) == []


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []


def test_abstains_with_one_rank(labelled: Runs) -> None:
    assert "no two ranks" in abstains(ID, labelled(ID).only(0))
