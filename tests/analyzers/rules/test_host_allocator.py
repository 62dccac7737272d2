"""Memory allocated and freed inside steps."""

from __future__ import annotations

import pytest
from captured import with_sidecars
from labelled_runs import Runs, fires

from ddprof.analyzers.catalogue import catalogue
from ddprof.findings import Candidate

ID = "host.allocator"


def test_suggests_expandable_segments(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == ()
    assert "expandable_segments" in str(said.fixes[0].patch)
    assert said.fixes[0].applies == (("expandable_segments", True),)
    assert said.lost_us == pytest.approx(labelled(ID).label["ledger"]["job"]["allocator"], rel=0.02)


@pytest.mark.parametrize("name", ["clean.ddp", "clean.fsdp"])
def test_is_silent_on_a_healthy_run(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []


def test_retries_outside_the_trace_are_said(labelled: Runs) -> None:
    (said,) = catalogue()[ID].detect(with_sidecars(labelled("clean.ddp"), {}, {"allocator": {"retries": 7}}, {}))
    assert isinstance(said, Candidate)
    assert said.ranks == (1,)
    assert "7 times" in said.evidence[0].text
