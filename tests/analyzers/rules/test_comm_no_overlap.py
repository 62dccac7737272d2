"""One reduction after backward: smaller buckets overlap."""

from __future__ import annotations

import pytest
from labelled_runs import Runs, abstains, fires

ID = "comm.no_overlap"


def test_suggests_smaller_buckets(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == ()
    assert said.changes[0].kind == "overlap"
    assert any(fix.setting == "bucket_cap_mb" and float(fix.suggested) <= 25 for fix in said.fixes)


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []


def test_abstains_where_missing_ranks_may_be_waited_for(labelled: Runs) -> None:
    assert "2 untraced ranks" in abstains(ID, labelled(ID).only(0, 1))
