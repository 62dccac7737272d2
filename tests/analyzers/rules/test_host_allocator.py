"""Memory allocated and freed inside steps."""

import pytest
from captured import with_sidecars
from labelled_runs import Runs, candidate, fires

ID = "host.allocator"


def test_suggests_expandable_segments_and_says_retries_outside_the_trace(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert "expandable_segments" in str(said.fixes[0].patch)
    assert said.fixes[0].applies == (("expandable_segments", True),)
    assert said.lost_us == pytest.approx(labelled(ID).label["ledger"]["job"]["allocator"], rel=0.02)
    said = candidate(ID, with_sidecars(labelled("clean.ddp"), {}, {"allocator": {"retries": 7}}, {}))
    assert said.ranks == (1,)
    assert "7 times" in said.evidence[0].text
