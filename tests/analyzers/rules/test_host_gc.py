"""Collections at different moments on different ranks."""

from __future__ import annotations

import pytest
from labelled_runs import Runs, fires

ID = "host.gc"


def test_suggests_to_collect_at_once(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == ()
    assert "gc." in str(said.fixes[0].patch)
    assert said.changes[0].target == "gc"


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []
