"""Hot experts and embedding tables, told from slow devices."""

import pytest
from labelled_runs import Runs

from ddprof.analyzers.job.peers.hot_shards import hot_shards


@pytest.mark.parametrize(
    ("name", "position", "kind"),
    [("hot expert", 3, "experts"), ("hot expert, with shapes", 0, "experts"), ("hot table", 1, "embedding tables")],
)
def test_who_is_asked_for_more(labelled: Runs, name: str, position: int, kind: str) -> None:
    ranks, fault = labelled(name).job.ranks, labelled(name).fault
    (shard,) = hot_shards(ranks)
    assert (shard.position, shard.kind) == (position, kind)
    assert shard.ratio == pytest.approx(1 + fault["magnitude"], rel=0.05)
    assert shard.excess_us * (1 - 1 / len(ranks)) == pytest.approx(fault["recoverable_us"], rel=0.1)  # max - mean


@pytest.mark.parametrize(
    "name", ["slow device among experts", "device short of power among experts", "healthy experts", "clean.ddp"]
)
def test_slow_devices_are_no_hot_shards(labelled: Runs, name: str) -> None:
    assert hot_shards(labelled(name).job.ranks) == ()
