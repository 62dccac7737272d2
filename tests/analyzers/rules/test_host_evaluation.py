"""Evaluation that takes a part of the run."""

from typing import Any

import pytest
from captured import steps, with_sidecars
from labelled_runs import Runs

from ddprof.analyzers.catalogue import catalogue
from ddprof.findings import Candidate

ID = "host.evaluation"
MS = 1_000_000


def evaluating(share: float, every: int = 2) -> dict[str, Any]:
    """The record of a rank that evaluates in every n-th of 60 steps of 20 ms, for a share of the run."""
    dur_ns = int(20 * MS * every * share)
    evaluations = [{"start_ns": 20 * at * MS, "dur_ns": dur_ns} for at in range(10, 60, every)]
    return {"steps": steps(60, 20 * MS), "evaluations": evaluations}


@pytest.mark.parametrize(
    ("shares", "ranks"),
    [
        ((0.2, 0.0, 0.0, 0.0), (0,)),
        ((0.03, 0.0, 0.0, 0.0), (0,)),  # all others wait for it
        ((0.2, 0.2, 0.2, 0.2), ()),
        ((0.03, 0.03, 0.03, 0.03), None),  # what is wanted of a training
        ((0.0, 0.0, 0.0, 0.0), None),
    ],
)
def test_who_evaluates_is_told(labelled: Runs, shares: tuple[float, ...], ranks: tuple[int, ...] | None) -> None:
    run = labelled("clean.ddp")
    records = [evaluating(share) if share else {**evaluating(0.1), "evaluations": []} for share in shares]
    measures = with_sidecars(run, *[records[min(at, 3)] for at in range(len(run.job.ranks))])
    found = [one for one in catalogue()[ID].detect(measures) if isinstance(one, Candidate)]
    assert [one.ranks for one in found] == ([] if ranks is None else [ranks])
    for one in found:
        assert one.ceiling_us == pytest.approx(max(shares) * measures.step_us, rel=0.1)


def test_one_evaluation_says_nothing_of_how_often_more_come(labelled: Runs) -> None:
    once = evaluating(0.2, every=50)
    once["evaluations"] = once["evaluations"][:1]
    assert list(catalogue()[ID].detect(with_sidecars(labelled("clean.ddp"), once, {}))) == []
