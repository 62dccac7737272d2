"""One stage with more work than the others."""

from __future__ import annotations

import pytest
from captured import without_peers
from labelled_runs import Runs, abstains, fires

ID = "pipeline.imbalance"


def test_names_the_heavy_stage(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == (1,)
    assert "stage 1" in said.summary


@pytest.mark.parametrize("name", ["clean.ddp", "clean.pp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []


def test_abstains_where_messages_name_no_peer(labelled: Runs) -> None:
    assert "name no peer" in abstains(ID, without_peers(labelled(ID)))
