"""Many small all-reduces: larger buckets, priced by merging them."""

from dataclasses import replace

import pytest
from captured import with_sidecars
from labelled_runs import Runs, candidate, fires
from msgspec import structs

from ddprof.analyzers.rules.evidence.exposures import exposures
from ddprof.sidecar import DeepSpeedSettings

ID = "comm.latency_bound"


def test_suggests_larger_buckets_but_not_of_messages_between_layers(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.changes[0].kind == "merge_buckets"
    assert any(fix.setting == "bucket_cap_mb" and float(fix.suggested) >= 10 for fix in said.fixes)
    measures = labelled(ID).measures
    assert [exposure.reason for exposure in exposures(measures)] == ["latency"]
    traffic = tuple(replace(t, role="tp") for t in measures.comm.traffic)
    assert exposures(replace(measures, comm=replace(measures.comm, traffic=traffic))) == []


@pytest.mark.parametrize(
    ("cap_mb", "count", "reasons"),
    [(0.001, 4, ["latency"]), (25.0, 4, []), (None, 4, []), (0.001, 1, []), (20.0, 4, [])],
)
def test_few_buckets_may_be_too_many(labelled: Runs, cap_mb: float | None, count: int, reasons: list[str]) -> None:
    """They are where the recorded size cuts up what the default sends at once."""
    measures = labelled(ID).measures
    traffic = tuple(replace(t, count=count, total_bytes=count * 2**17) for t in measures.comm.traffic)
    settings = structs.replace(measures.settings, ddp=structs.replace(measures.settings.ddp, bucket_cap_mb=cap_mb))
    measures = replace(measures, comm=replace(measures.comm, traffic=traffic), settings=settings)
    assert [exposure.reason for exposure in exposures(measures) if exposure.reason == "latency"] == reasons


@pytest.mark.parametrize(
    ("now", "setting"),
    [(1000, "reduce_bucket_size"), (500_000_000, "collectives outside"), (2_000_000_000, "collectives outside")],
)
def test_deepspeed_is_told_its_own_setting(labelled: Runs, now: int, setting: str) -> None:
    measures = labelled(ID).measures
    deepspeed = DeepSpeedSettings(zero_stage=2, reduce_bucket_size=now)
    measures = replace(measures, settings=structs.replace(measures.settings, deepspeed=deepspeed))
    said = candidate(ID, measures)
    assert said.fixes[0].setting.startswith(setting)
    assert dict(said.fixes[0].applies) == ({"reduce_bucket_size": 500_000_000} if now == 1000 else {})


def test_buckets_larger_than_the_default_are_not_made_smaller(labelled: Runs) -> None:
    said = candidate(ID, with_sidecars(labelled(ID), {"ddp": {"bucket_cap_mb": 50.0}}))
    assert said.fixes[0].setting == "collectives outside the buckets" and "is 50 already" in said.fixes[0].why


@pytest.mark.parametrize("name", ["three units a layer", "three units a layer, without sizes"])
def test_small_units_are_to_be_fewer(labelled: Runs, name: str) -> None:
    """Nested wrapping: the fix is a unit per block; resharding and prefetching are no answers to latency."""
    run = labelled(name)
    said = fires(run, ID)
    assert said.fixes[0].setting == "FSDP units" and "3 for each of 4 equal blocks" in said.summary
    assert run.said("comm.sharding") == run.said("comm.no_overlap") == [] and run.score.right
    assert run.report.ranked_findings()[0].id == ID
