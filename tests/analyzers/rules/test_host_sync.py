"""Blocking calls inside the step, and who makes them."""

from __future__ import annotations

import pytest
from captured import with_sidecars
from labelled_runs import Runs, fires

from ddprof.analyzers.catalogue import catalogue
from ddprof.findings import Candidate

ID = "host.sync"


def test_names_the_calls_and_the_idle_time(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == ()
    assert said.fixes[0].current
    assert said.lost_us == pytest.approx(labelled(ID).label["ledger"]["job"]["host_sync"], rel=0.02)


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []


def test_names_the_line_of_the_script(labelled: Runs) -> None:
    line = {
        "source_line": "train.py:88",
        "what": "item",
        "count": 5,
        "total_ns": 9_000,
        "source": "total += loss.item()",
    }
    (said,) = catalogue()[ID].detect(with_sidecars(labelled(ID), {"syncs": [line]}))
    assert isinstance(said, Candidate)
    assert "train.py:88: total += loss.item()" in said.evidence[0].text
    assert said.fixes[0].patch is not None
    assert "- total += loss.item()\n+ total += loss.detach()" in said.fixes[0].patch
