"""Too few microbatches for the depth."""

from __future__ import annotations

import pytest
from labelled_runs import Runs, fires

ID = "pipeline.bubble"


def test_suggests_twice_the_microbatches(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert (said.fixes[0].current, said.fixes[0].suggested) == ("2", "4")
    assert said.is_bound


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_without_a_pipeline(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []
