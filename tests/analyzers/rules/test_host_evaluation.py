"""Evaluation that takes a part of the run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captured import steps, with_sidecars
from cpu_loop import FORWARD, Chore, cpu_loop, operators, sampled
from kineto_run import Script
from labelled_runs import Runs

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.job.measures import measure
from ddprof.findings import Candidate
from ddprof.model import SCRIPT_TOTALS

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


def scores(script: Script) -> None:
    with script.frame("train.py(60): score"), script.frame(FORWARD), script.frame("model.py(9): forward"):
        operators(script, "linear", count=20)


def loss(script: Script) -> None:
    with script.frame(FORWARD), script.frame("torch/nn/modules/loss.py(1293): forward"):
        operators(script, "linear", count=20)


@pytest.mark.parametrize(
    ("chore", "frame", "beside", "found"),
    [(scores, "forward", 20, True), (scores, "forward", 5, False), (loss, "forward", 20, False)],
)
def test_a_model_that_all_ranks_call_beside_the_passes(
    tmp_path: Path, chore: Chore, frame: str, beside: int, found: bool
) -> None:
    """Shares are of 100 samples of a rank; a loss function is a part of the step, and what takes little is not told."""
    ranks = [cpu_loop(tmp_path, after=chore, rank=rank) for rank in range(2)]
    seen = [sampled(facts, {frame: 5_000}, samples=beside) for facts in ranks]
    each = [with_phase(facts, "backward", 100 - beside) for facts in seen]
    said = [one for one in catalogue()[ID].detect(measure(job_facts(each))) if isinstance(one, Candidate)]
    assert bool(said) is found
    for one in said:
        assert not one.ranks and one.is_bound and "takes 20 % of the time, in train.py:60 score()" in one.summary
        assert one.evidence[0].text == "40 of 200 samples of all ranks are in it"


def with_phase(facts: RankFacts, phase: str, samples: int) -> RankFacts:
    """The rank with samples of its outermost stack in another phase."""
    totals = facts.script_totals
    row = {"stack": 0, "thread": "", "phase": phase, "samples": samples, "time_ns": 5_000, "late_ns": 0}
    columns = {name: [*totals[name].tolist(), value] for name, value in row.items()}
    return replace(facts, script_totals=SCRIPT_TOTALS.table(columns))


def test_one_evaluation_says_nothing_of_how_often_more_come(labelled: Runs) -> None:
    once = evaluating(0.2, every=50)
    once["evaluations"] = once["evaluations"][:1]
    assert list(catalogue()[ID].detect(with_sidecars(labelled("clean.ddp"), once, {}))) == []
