"""One reduction after backward: smaller buckets overlap."""

from dataclasses import replace

import pytest
from labelled_runs import Labelled, Runs, abstains, candidate, fires
from msgspec import structs

from ddprof.sidecar import FsdpSettings

ID = "comm.no_overlap"


def test_suggests_smaller_buckets_unless_missing_ranks_may_be_waited_for(faulty: Labelled) -> None:
    said = fires(faulty, ID)
    assert said.changes[0].kind == "overlap"
    assert any(fix.setting == "bucket_cap_mb" and float(fix.suggested) <= 25 for fix in said.fixes)
    assert "2 missing ranks" in abstains(ID, faulty.only(0, 1))


def test_late_gathers_are_to_be_ahead(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing prefetch: not answered with less sharding, which is told beside it, for whoever has the memory."""
    run = labelled("gathers when needed")
    said = fires(run, ID)
    assert said.fixes[0].setting == "prefetch of parameters in forward and backward"
    assert "set_modules_to_forward_prefetch" in (said.fixes[0].patch or "")
    assert said.fixes[0].applies == (("forward_prefetch_units", 1), ("backward_prefetch_units", 1))
    assert said.fixes[1].applies == (("reshard_after_forward", False),)
    assert run.said("comm.sharding") == run.said("comm.latency_bound") == [] and run.score.right
    settings = structs.replace(run.measures.settings, fsdp=FsdpSettings(version=1, backward_prefetch="BACKWARD_POST"))
    said = candidate(ID, replace(run.measures, settings=settings))
    assert "forward_prefetch=True" in (said.fixes[0].patch or "")
    assert said.fixes[0].applies == (("forward_prefetch", True), ("backward_prefetch", "pre"))
    monkeypatch.setattr("ddprof.analyzers.rules.comm_no_overlap.has_room", lambda _: False)
    assert "reshard_after_forward" not in [fix.setting for fix in fires(run, ID).fixes]
