"""Samples as captured: indices, first batches, samplers, lengths of epochs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from captured import with_sidecars
from labelled_runs import Labelled, abstains, candidate

from ddprof.analyzers.catalogue import catalogue, remarks
from ddprof.analyzers.facts.model import SCRIPT_OPERATORS
from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Basis
from ddprof.tables import NULL

ID = "input.unsharded"
SAME = [list(range(64))] * 4
SHARDS = [list(range(rank, 256, 4)) for rank in range(4)]
PADDED = [[*shard[:-1], 0] for shard in SHARDS]  # DistributedSampler repeats its first sample where shards are uneven
LABELS = {"shape": [8], "dtype": "int64"}
FOUR = ["aa", "bb", "cc", "dd"]
DRAWN = [[(7 * i + 31 * rank) % 200 for i in range(64)] for rank in range(4)]
STREAM = "_InfiniteConstantSampler"  # of an iterable data set


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
    sidecars = []
    for position in range(len(run.job.ranks)):
        loader = {"batches_per_epoch": batches[position], "sampler": {"class": sampler, "sharded": sharded}}
        sidecar: dict[str, Any] = {"dataloader": loader, "parallelism": list(parallelism)}
        if indices is not None:
            sidecar["sample_indices"] = indices[position]
        if prints is not None:
            sidecar["batch"] = {"tensors": [{**LABELS, "fingerprint": each} for each in prints[position].split()]}
        sidecars.append(sidecar)
    return with_sidecars(run, *sidecars)


@pytest.mark.parametrize(
    ("recorded", "words", "basis"),
    [
        ({"indices": SAME, "prints": ["aa"] * 4, "sharded": True}, "same samples", Basis.RECORDED),
        ({"indices": DRAWN, "sharded": False}, "whole data set", Basis.DEDUCED),
        ({"sharded": False}, "same samples", Basis.RECORDED),  # a sampler that does not shard is enough
        ({"prints": ["aa"] * 4, "sampler": STREAM}, "same stream", Basis.RECORDED),
        ({"prints": [f"aa {own}" for own in "bcde"], "sampler": STREAM}, "same stream", Basis.RECORDED),  # positions
        ({"indices": SHARDS, "sharded": True, "batches": (100, 100, 100, 101)}, "rank 3 has 101", Basis.RECORDED),
    ],
)
def test_what_ranks_without_shards_leave(healthy: Labelled, recorded: dict[str, Any], words: str, basis: Basis) -> None:
    measures = captured(healthy, **recorded)
    found = candidate(ID, measures)
    assert bool(remarks(measures.job)) == (recorded.get("prints") == ["aa"] * 4)  # surely the same: in doubt no remark
    assert words in found.summary and found.basis is basis
    assert words != "same samples" or found.fixes[0].suggested == "DistributedSampler"


@pytest.mark.parametrize(("operator", "severity"), [("aten::randn", "info"), ("aten::stack", "warning")])
def test_batches_drawn_at_random_are_of_made_up_data(healthy: Labelled, operator: str, severity: str) -> None:
    """Equal seeds of a script that draws its batches: told, and no reason to doubt a result that is none."""
    job = with_sidecars(healthy, *[{"batch": {"tensors": [{**LABELS, "fingerprint": "aa"}]}}] * 4).job
    drawn = {"stack": [NULL], "name": [0], "in_optimizer": [False], "count": [4], "time_ns": [9]}
    ranks = [replace(f, strings=(operator,), script_operators=SCRIPT_OPERATORS.table(drawn)) for f in job.ranks]
    (remark,) = remarks(replace(job, ranks=tuple(ranks)))
    assert remark.severity == severity and ("manual_seed" in (remark.fixes[0].patch or "")) == (severity == "info")


@pytest.mark.parametrize("indices", [None, [*SHARDS[:3], list(range(64))]])
def test_a_sampler_that_does_not_shard_is_named_with_rank(healthy: Labelled, indices: list[list[int]] | None) -> None:
    samplers = [{"class": "DistributedSampler", "sharded": True}] * 3 + [{"class": "RandomSampler", "sharded": False}]
    sidecars: list[dict[str, Any]] = [{"dataloader": {"sampler": sampler}} for sampler in samplers]
    for sidecar, own in zip(sidecars, indices or [], strict=False):
        sidecar["sample_indices"] = own
    said = candidate(ID, with_sidecars(healthy, *sidecars))
    assert said.summary.startswith("RandomSampler draws from the whole data set on rank 3")
    assert ("were read twice" in said.summary) == (indices is not None) and said.fixes[0].current == "RandomSampler"


@pytest.mark.parametrize(
    "recorded",
    [
        *({"indices": SHARDS, "sharded": True}, {"indices": PADDED, "sharded": True}),
        {"prints": FOUR, "sampler": STREAM},
    ],
    ids=["even", "padded", "stream"],
)
def test_shards_are_healthy(healthy: Labelled, recorded: dict[str, Any]) -> None:
    measures = captured(healthy, **recorded)
    assert (*catalogue()[ID].detect(measures), *remarks(measures.job)) == ()


@pytest.mark.parametrize(
    ("recorded", "reason"),
    [
        ({"indices": SAME, "prints": FOUR, "sharded": False}, ""),  # equal indices of different data sets
        ({"indices": SAME, "prints": ["aa"] * 4, "parallelism": ("ddp", "tp")}, "by design"),  # parts of one replica
        (None, "does not record samplers"),
    ],
)
def test_abstains_where_samples_do_not_compare(healthy: Labelled, recorded: dict[str, Any] | None, reason: str) -> None:
    measures = healthy.measures if recorded is None else captured(healthy, **recorded)
    assert reason in abstains(ID, measures) and remarks(measures.job) == ()
