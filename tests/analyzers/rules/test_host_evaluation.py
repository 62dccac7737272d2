"""Evaluation that takes a part of the run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from captured import on_cpu, steps, with_sidecars
from cpu_loop import FORWARD, Chore, cpu_loop, operators, sampled
from kineto_run import Script
from labelled_runs import Labelled, candidates, run_of
from sampled_stacks import totals, with_stacks

from ddprof.analyzers.catalogue import catalogue
from ddprof.findings import Candidate
from ddprof.model import SCRIPT_TOTALS
from ddprof.tables import concat

ID = "host.evaluation"
MS = 1_000_000


def evaluating(share: float, every: int = 2) -> dict[str, Any]:
    """The record of a rank that evaluates in every n-th of 60 steps of 20 ms, for a share of the run."""
    evaluations = [{"start_ns": 20 * at * MS, "dur_ns": int(20 * MS * every * share)} for at in range(10, 60, every)]
    return {"steps": steps(60, 20 * MS), "evaluations": evaluations}


@pytest.mark.parametrize(
    ("shares", "ranks"),
    [
        ((0.2, 0.0, 0.0, 0.0), (0,)),
        ((0.03, 0.0, 0.0, 0.0), (0,)),  # all others wait for it
        ((0.2, 0.2, 0.2, 0.2), ()),
        ((0.02, 0.02, 0.02, 0.02), None),  # what is wanted of a training
        ((0.0, 0.0, 0.0, 0.0), None),
    ],
)
def test_who_evaluates_is_told(healthy: Labelled, shares: tuple[float, ...], ranks: tuple[int, ...] | None) -> None:
    records = [evaluating(share) if share else {**evaluating(0.1), "evaluations": []} for share in shares]
    measures = with_sidecars(healthy, *records)
    found = candidates(ID, measures)
    assert [one.ranks for one in found] == ([] if ranks is None else [ranks])
    for one in found:
        assert one.ceiling_us == pytest.approx(max(shares) * measures.step_us, rel=0.1)


def test_a_job_of_one_rank_that_evaluates_is_told(healthy: Labelled) -> None:
    (said,) = candidates(ID, with_sidecars(run_of(healthy.job.ranks[:1]), evaluating(0.2)))
    assert not said.ranks and "takes 20 % of the time" in said.summary


@pytest.mark.parametrize(("waited_ns", "ranks"), [(400_000_000, []), (0, [(0,)])])
def test_a_rank_that_had_no_cpu_does_not_evaluate_alone(healthy: Labelled, waited_ns: int, ranks: list[Any]) -> None:
    waits = [{"cpu_waits": {"run": {"dur_ns": 10**9, "cpu_ns": 10**8, "waited_ns": ns}}} for ns in (waited_ns, 0, 0, 0)]
    records = [evaluating(share) | each for share, each in zip((0.2, 0.02, 0.02, 0.02), waits, strict=True)]
    assert [one.ranks for one in candidates(ID, on_cpu(healthy, *records))] == ranks


def test_all_ranks_evaluate_for_what_they_have_alike(healthy: Labelled) -> None:
    """Rank 0 evaluates for 30 % of its time, the others for 15 %: the whole job has 15 %."""
    (said,) = candidates(ID, with_sidecars(healthy, *map(evaluating, (0.3, 0.15, 0.15, 0.15))))
    assert not said.ranks and "takes 15 % of the time on all ranks" in said.summary


def scores(script: Script) -> None:
    with script.frame("train.py(60): score"), script.frame(FORWARD), script.frame("model.py(9): forward"):
        operators(script, "linear", count=20)


def scores_and_fetches(script: Script) -> None:
    scores(script)
    operators(script, "linear", count=400)
    script.host("ddprof::data", 100.0, "user_annotation")


def loss(script: Script) -> None:
    with script.frame(FORWARD), script.frame("losses.py(12): forward"):  # a criterion of the script
        operators(script, "linear", count=20)
        with script.frame("torch/nn/modules/loss.py(1293): forward"):
            operators(script, "linear", dur_us=500.0)


def calling_beside(folder: Path, beside: int, **chores: Chore) -> list[Candidate]:
    """Findings where so many of 100 samples of each of two ranks are in a model called beside the passes."""
    ranks = [cpu_loop(folder, rank=rank, **chores) for rank in range(2)]
    seen = [sampled(facts, {"forward": 5_000}, samples=beside) for facts in ranks]
    rest = totals(("backward", 0, 100 - beside), time_ns=[5_000])  # of its outermost stack
    whole = [replace(facts, script_totals=concat(SCRIPT_TOTALS, [facts.script_totals, rest])) for facts in seen]
    return candidates(ID, run_of(whole).measures)


@pytest.mark.parametrize(("chore", "beside", "found"), [(scores, 20, True), (scores, 5, False), (loss, 20, False)])
def test_a_model_that_all_ranks_call_beside_the_passes(tmp_path: Path, chore: Chore, beside: int, found: bool) -> None:
    """Shares are of 100 samples of a rank; a loss function is a part of the step, and what takes little is not told."""
    said = calling_beside(tmp_path, beside, after=chore)
    assert bool(said) is found
    for one in said:
        assert not one.ranks and one.is_bound and "takes 20 % of the time, in train.py:60 score()" in one.summary
        assert one.evidence[0].text == "40 of 200 samples of all ranks are in it"


@pytest.mark.parametrize(("chore", "band"), [(scores, 1.0), (scores_and_fetches, 0.5)])
def test_what_ends_before_the_batch_is_fetched_is_no_teacher(tmp_path: Path, chore: Chore, band: float) -> None:
    updates: Chore = lambda script: script.host("ddprof::optimizer", 50.0, "user_annotation")  # noqa: E731
    (said,) = calling_beside(tmp_path, 20, before=chore, optimizer=updates)
    assert said.band == band and ("after the optimizer's step" in said.summary) is (band < 1)


def test_one_evaluation_says_nothing_of_how_often_more_come(healthy: Labelled) -> None:
    once = {**(often := evaluating(0.2, every=50)), "evaluations": often["evaluations"][:1]}
    assert list(catalogue()[ID].detect(with_sidecars(healthy, once, {}))) == []


@pytest.mark.parametrize(
    ("function", "counts", "found"),
    [
        ("validate", (30, 0, 0, 0), [("host.evaluation", (0,))]),
        ("save_state", (30, 0, 0, 0), [("host.checkpoint", (0,))]),
        ("validate", (30, 30, 30, 30), []),
    ],
)
def test_what_samples_saw_one_rank_alone_do_is_told_by_its_name(
    healthy: Labelled, function: str, counts: tuple[int, ...], found: list[tuple[str, tuple[int, ...]]]
) -> None:
    stacks = ("train.py", 9, "main", None), ("train.py", 40, function, 0)
    seen = [totals(("forward", 0, 200), ("rest", 1, count)) for count in counts]
    ranks = [with_stacks(facts, *stacks) for facts in healthy.job.ranks]
    measures = run_of([replace(one, script_totals=its) for one, its in zip(ranks, seen, strict=True)]).measures
    assert [(one.id, one.ranks) for rule in (ID, "host.checkpoint") for one in candidates(rule, measures)] == found
