"""Exposed all-gathers of parameters: shard less, if it would fit."""

from labelled_runs import Runs, fires, on_every_rank

from ddprof.analyzers.catalogue import catalogue

ID = "comm.sharding"


def test_suggests_less_sharding_where_it_would_fit(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert "reshard_after_forward" in [fix.setting for fix in said.fixes]
    measures = labelled(ID).measures
    full = {"peak_allocated_bytes": 79 * 10**9, "total_bytes": 80 * 10**9}
    assert list(catalogue()[ID].detect(on_every_rank(measures, memory=full))) == []
