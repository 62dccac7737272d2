"""Samplers as the capture recorded them: whole data set on every rank, uneven shards, or unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.job.measures import Measures
from labelled_runs import Labelled, Runs, abstains

from ddprof.findings import Candidate

ID = "input.unsharded"


def with_sampler(run: Labelled, **sampler: Any) -> Measures:
    """The run as if its capture had recorded this sampler on every rank."""
    loader = {"dataloader": {"sampler": {"class": "RandomSampler", **sampler}}}
    ranks = tuple(replace(facts, sidecar=loader) for facts in run.job.ranks)
    return replace(run.measures, job=replace(run.job, ranks=ranks))


def test_fires_where_every_rank_reads_everything(labelled: Runs) -> None:
    (said,) = catalogue()[ID].detect(with_sampler(labelled("clean.ddp"), sharded=False))
    assert isinstance(said, Candidate)
    assert "same samples" in said.summary
    assert said.fixes[0].suggested == "DistributedSampler"


def test_fires_on_uneven_shards(labelled: Runs) -> None:
    (said,) = catalogue()[ID].detect(with_sampler(labelled("clean.ddp"), sharded=True, even=False))
    assert isinstance(said, Candidate)
    assert "unequal lengths" in said.summary


def test_is_silent_on_even_shards(labelled: Runs) -> None:
    assert list(catalogue()[ID].detect(with_sampler(labelled("clean.ddp"), sharded=True, even=True))) == []


def test_abstains_where_samplers_were_not_recorded(labelled: Runs) -> None:
    assert "does not record samplers" in abstains(ID, labelled("clean.ddp").measures)
