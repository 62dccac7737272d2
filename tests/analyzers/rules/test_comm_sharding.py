"""Exposed all-gathers of parameters: shard less, if it would fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from labelled_runs import Runs, fires

from ddprof.analyzers.catalogue import catalogue

ID = "comm.sharding"


def test_suggests_less_sharding(labelled: Runs) -> None:
    said = fires(labelled(ID), ID)
    assert said.ranks == ()
    assert "reshard_after_forward" in [fix.setting for fix in said.fixes]


def test_is_silent_where_less_sharding_would_not_fit(labelled: Runs) -> None:
    measures = labelled(ID).measures
    full = {"peak_allocated_bytes": 79 * 10**9, "total_bytes": 80 * 10**9}
    ranks = tuple(replace(facts, memory=full) for facts in measures.job.ranks)
    assert list(catalogue()[ID].detect(replace(measures, job=replace(measures.job, ranks=ranks)))) == []


@pytest.mark.parametrize("name", ["clean.ddp", "comm.bandwidth_bound"])
def test_is_silent_without_sharding(labelled: Runs, name: str) -> None:
    assert labelled(name).said(ID) == []
