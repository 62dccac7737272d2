"""Copies from pageable memory with nothing beside them."""

from __future__ import annotations

import pytest
from labelled_runs import Runs, fires

ID = "input.pageable_copy"


def test_names_pinned_memory(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == ()
    assert "pin_memory" in " ".join(f"{fix.setting} {fix.patch}" for fix in said.fixes)
    assert said.lost_us > 0.1 * labelled(ID).measures.step_us


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []
