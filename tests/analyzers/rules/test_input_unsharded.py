"""What the capture recorded of samples: indices, first batches, samplers, lengths of epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from captured import sidecar_of
from labelled_runs import Labelled, Runs

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Abstention, Basis, Candidate

ID = "input.unsharded"
SAME = [list(range(64))] * 4
SHARDS = [list(range(rank, 256, 4)) for rank in range(4)]
PADDED = [[*shard[:-1], 0] for shard in SHARDS]  # DistributedSampler repeats its first sample where shards are uneven
LABELS = {"shape": [8], "dtype": "int64"}


def captured(
    run: Labelled,
    indices: list[list[int]] | None = None,
    prints: list[str] | None = None,
    sampler: str = "RandomSampler",
    sharded: bool | None = None,
    batches: Sequence[int | None] = (None,) * 4,
    parallelism: Sequence[str] = ("ddp",),
) -> Measures:
    """The run as if its capture had recorded this loader, these first samples and these first batches."""
    ranks = []
    for position, facts in enumerate(run.job.ranks):
        loader = {"batches_per_epoch": batches[position], "sampler": {"class": sampler, "sharded": sharded}}
        sidecar: dict[str, Any] = {"dataloader": loader, "parallelism": list(parallelism)}
        if indices is not None:
            sidecar["sample_indices"] = indices[position]
        if prints is not None:
            sidecar["batch"] = {"tensors": [{**LABELS, "fingerprint": prints[position]}]}
        ranks.append(replace(facts, sidecar=sidecar_of(sidecar)))
    return replace(run.measures, job=replace(run.job, ranks=tuple(ranks)))


def said(measures: Measures) -> list[Candidate | Abstention]:
    return list(catalogue()[ID].detect(measures))


def test_equal_indices_and_batches_are_the_same_samples(labelled: Runs) -> None:
    (found,) = said(captured(labelled("clean.ddp"), SAME, ["aa"] * 4, sharded=True))  # whatever the sampler claims
    assert isinstance(found, Candidate)
    assert "same samples" in found.summary
    assert found.basis is Basis.RECORDED
    assert found.fixes[0].suggested == "DistributedSampler"


def test_equal_indices_of_different_data_sets_accuse_nobody(labelled: Runs) -> None:
    (found,) = said(captured(labelled("clean.ddp"), SAME, ["aa", "bb", "cc", "dd"], sharded=False))
    assert isinstance(found, Abstention)


def test_every_rank_draws_from_everything(labelled: Runs) -> None:
    drawn = [[(7 * i + 31 * rank) % 200 for i in range(64)] for rank in range(4)]
    (found,) = said(captured(labelled("clean.ddp"), drawn, sharded=False))
    assert isinstance(found, Candidate)
    assert "whole data set" in found.summary
    assert found.basis is Basis.DEDUCED


@pytest.mark.parametrize("indices", [SHARDS, PADDED], ids=["even", "padded"])
def test_shards_are_healthy(labelled: Runs, indices: list[list[int]]) -> None:
    assert said(captured(labelled("clean.ddp"), indices, sharded=True)) == []


def test_a_sampler_that_does_not_shard_is_enough(labelled: Runs) -> None:
    (found,) = said(captured(labelled("clean.ddp"), sharded=False))
    assert isinstance(found, Candidate)


def test_iterable_data_sets_are_judged_by_their_batches(labelled: Runs) -> None:
    run = labelled("clean.ddp")
    same = captured(run, prints=["aa"] * 4, sampler="_InfiniteConstantSampler")
    other = captured(run, prints=["aa", "bb", "cc", "dd"], sampler="_InfiniteConstantSampler")
    (found,) = said(same)
    assert isinstance(found, Candidate)
    assert "same stream" in found.summary
    assert said(other) == []


def test_epochs_of_different_length(labelled: Runs) -> None:
    (found,) = said(captured(labelled("clean.ddp"), SHARDS, sharded=True, batches=(100, 100, 100, 101)))
    assert isinstance(found, Candidate)
    assert "rank 3 has 101" in found.summary


def test_parts_of_one_replica_are_not_judged(labelled: Runs) -> None:
    (found,) = said(captured(labelled("clean.ddp"), SAME, ["aa"] * 4, parallelism=("ddp", "tp")))
    assert isinstance(found, Abstention)
    assert "by design" in found.reason


def test_abstains_where_samplers_were_not_recorded(labelled: Runs) -> None:
    (found,) = said(labelled("clean.ddp").measures)
    assert isinstance(found, Abstention)
    assert "does not record samplers" in found.reason
