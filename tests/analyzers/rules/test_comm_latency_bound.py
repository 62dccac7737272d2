"""Many small all-reduces: larger buckets, priced by merging them."""

from dataclasses import replace

import pytest
from captured import with_sidecars, with_traffic
from labelled_runs import Labelled, Runs, candidate, fires
from msgspec import structs

from ddprof.analyzers.rules.evidence.exposures import exposures
from ddprof.sidecar import DeepSpeedSettings

ID = "comm.latency_bound"


def test_suggests_larger_buckets_but_not_of_messages_between_layers(faulty: Labelled) -> None:
    said = fires(faulty, ID)
    assert said.changes[0].kind == "merge_buckets"
    assert any(fix.setting == "bucket_cap_mb" and float(fix.suggested) >= 10 for fix in said.fixes)
    assert [exposure.reason for exposure in exposures(faulty.measures)] == ["latency"]
    assert exposures(with_traffic(faulty.measures, role="tp")) == []


@pytest.mark.parametrize(
    ("cap_mb", "count", "reasons"),
    [(0.001, 4, ["latency"]), (25.0, 4, []), (None, 4, []), (0.001, 1, []), (20.0, 4, [])],
)
def test_few_buckets_may_be_too_many(faulty: Labelled, cap_mb: float | None, count: int, reasons: list[str]) -> None:
    """They are where the recorded size cuts up what the default sends at once."""
    sent = with_traffic(faulty.measures, count=count, total_bytes=count * 2**17)
    settings = structs.replace(sent.settings, ddp=structs.replace(sent.settings.ddp, bucket_cap_mb=cap_mb))
    told = [exposure.reason for exposure in exposures(replace(sent, settings=settings))]
    assert [reason for reason in told if reason == "latency"] == reasons


@pytest.mark.parametrize(
    ("now", "setting"),
    [(1000, "reduce_bucket_size"), (500_000_000, "collectives outside"), (2_000_000_000, "collectives outside")],
)
def test_deepspeed_is_told_its_own_setting(faulty: Labelled, now: int, setting: str) -> None:
    deepspeed = DeepSpeedSettings(zero_stage=2, reduce_bucket_size=now)
    settings = structs.replace(faulty.measures.settings, deepspeed=deepspeed)
    said = candidate(ID, replace(faulty.measures, settings=settings))
    assert said.fixes[0].setting.startswith(setting)
    assert dict(said.fixes[0].applies) == ({"reduce_bucket_size": 500_000_000} if now == 1000 else {})


def test_buckets_larger_than_the_default_are_not_made_smaller(faulty: Labelled) -> None:
    said = candidate(ID, with_sidecars(faulty, {"ddp": {"bucket_cap_mb": 50.0}}))
    assert said.fixes[0].setting == "collectives outside the buckets" and "is 50 already" in said.fixes[0].why


@pytest.mark.parametrize("name", ["three units a layer", "three units a layer, without sizes"])
def test_small_units_are_to_be_fewer(labelled: Runs, name: str) -> None:
    """Nested wrapping: the fix is a unit per block; resharding and prefetching are no answers to latency."""
    run = labelled(name)
    said = fires(run, ID)
    assert said.fixes[0].setting == "FSDP units" and "3 for each of 4 equal blocks" in said.summary
    assert run.said("comm.sharding") == run.said("comm.no_overlap") == [] and run.score.right
    assert run.report.ranked_findings()[0].id == ID
