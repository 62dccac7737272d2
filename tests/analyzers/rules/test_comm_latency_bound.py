"""Many small all-reduces: larger buckets, priced by merging them."""

from dataclasses import replace

import numpy as np
import pytest
from captured import with_sidecars, with_traffic
from labelled_runs import Labelled, Runs, candidate, fires
from msgspec import structs

from ddprof.analyzers.job.traffic.statistics import CommStats, Traffic
from ddprof.analyzers.rules.evidence.exposures import exposures, is_slow_for_size
from ddprof.sidecar import DeepSpeedSettings

ID = "comm.latency_bound"
KIB, ZERO = 1024.0, "reduce_bucket_size"


def test_suggests_larger_buckets_but_not_between_layers(faulty: Labelled, monkeypatch: pytest.MonkeyPatch) -> None:
    said = fires(faulty, ID)
    assert said.changes[0].kind == "merge_buckets"
    assert any(fix.setting == "bucket_cap_mb" and float(fix.suggested) >= 10 for fix in said.fixes)
    assert [exposure.reason for exposure in exposures(faulty.measures)] == ["latency"]
    assert exposures(with_traffic(faulty.measures, role="tp")) == []
    monkeypatch.setattr("ddprof.analyzers.rules.comm_latency_bound.lines_that_call", lambda *_: ["a.py:1", "b.py:2"])
    assert [fix.setting for fix in candidate(ID, faulty.measures).fixes] == ["a.py:1", "b.py:2"]


@pytest.mark.parametrize(
    ("cap_mb", "count", "reasons"),
    [(0.001, 4, ["latency"]), (25.0, 4, []), (None, 4, []), (0.001, 1, []), (20.0, 4, [])],
)
def test_few_buckets_may_be_too_many(faulty: Labelled, cap_mb: float | None, count: int, reasons: list[str]) -> None:
    """They are where the recorded size cuts up what the default sends at once."""
    sent = with_traffic(faulty.measures, count=count, total_bytes=count * 2**17)
    settings = structs.replace(sent.settings, ddp=structs.replace(sent.settings.ddp, bucket_cap_mb=cap_mb))
    assert [e.reason for e in exposures(replace(sent, settings=settings)) if e.reason == "latency"] == reasons


@pytest.mark.parametrize(
    ("now", "setting"),
    [(1000, "reduce_bucket_size"), (500_000_000, "collectives outside"), (2_000_000_000, "collectives outside")],
)
def test_deepspeed_is_told_its_own_setting(faulty: Labelled, now: int, setting: str) -> None:
    zero = DeepSpeedSettings(zero_stage=2, reduce_bucket_size=now)
    settings = structs.replace(faulty.measures.settings, deepspeed=zero)
    (fix,) = candidate(ID, replace(faulty.measures, settings=settings)).fixes
    assert (fix.setting.startswith(setting), dict(fix.applies)) == (True, {ZERO: 500_000_000} if now == 1000 else {})


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


def traffic(op: str, size_bytes: float, took_us: float, crosses_hosts: bool = True, role: str = "dp") -> Traffic:
    """Fifty equal messages of four ranks."""
    sizes, times = np.full(50, size_bytes), np.full(50, took_us)
    return Traffic(op, role, 4, 50.0, float(sizes.sum()), float(times.sum()), 500.0, sizes, times, crosses_hosts)


def is_slow(*said: Traffic) -> bool:
    return is_slow_for_size(said[0], CommStats(said))


BUCKETS = traffic("all_reduce", 512 * KIB, 66.0)  # 12 GB/s on the bus


@pytest.mark.parametrize(
    ("other", "slow"),
    [
        ([], False),
        ([traffic("broadcast", 4_000_000.0, 82.0)], True),  # 49 GB/s
        ([traffic("broadcast", 4_000_000.0, 250.0)], False),  # 16 GB/s
        ([traffic("broadcast", 4_000_000.0, 82.0, role="tp")], False),  # other links
        ([traffic("broadcast", 4_000_000.0, 82.0, crosses_hosts=False)], False),
    ],
)
def test_a_link_that_moved_other_messages_faster_shows_what_the_bytes_take(other: list[Traffic], slow: bool) -> None:
    assert is_slow(BUCKETS, *other) == slow
    assert is_slow(traffic("all_reduce", 512 * KIB, 500.0))  # a small message that takes very long, on any link


@pytest.mark.parametrize("size_kib,took_us,slow", [(512, 120.0, True), (512, 66.0, False), (8192, 2_000.0, False)])
def test_devices_of_one_host_are_joined_by_pcie_at_least(size_kib: int, took_us: float, slow: bool) -> None:
    """Latency is twice the time of the bytes, and not so long that the link itself must be slow."""
    assert is_slow(traffic("all_reduce", size_kib * KIB, took_us, crosses_hosts=False)) == slow
    assert not is_slow(traffic("all_reduce", size_kib * KIB, took_us))
