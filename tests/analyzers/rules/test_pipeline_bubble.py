"""Too few microbatches for the depth."""

from __future__ import annotations

import pytest
from captured import without_peers
from labelled_runs import Runs, abstains, fires

ID = "pipeline.bubble"


def test_suggests_twice_the_microbatches(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert (said.fixes[0].current, said.fixes[0].suggested) == ("2", "4")
    assert said.is_bound
    assert said.ranks == ()


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_without_a_pipeline(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []


def test_abstains_where_messages_name_no_peer(labelled: Runs) -> None:
    assert "name no peer" in abstains(ID, without_peers(labelled(ID)))
