"""Evaluation that takes a part of the run."""

from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from captured import on_cpu, steps, with_sidecars
from cpu_loop import FORWARD, Chore, cpu_loop, operators, sampled
from kineto_run import Script
from labelled_runs import Labelled, candidate, candidates, run_of
from sampled_stacks import totals, with_stacks

from ddprof.analyzers.catalogue import catalogue
from ddprof.model import SCRIPT_TOTALS
from ddprof.tables import concat

ID = "host.evaluation"
MS = 1_000_000


def evaluating(share: float, every: int = 2) -> dict[str, Any]:
    """The record of a rank that evaluates in every n-th of 60 steps of 20 ms, for a share of the run."""
    evaluations = [{"start_ns": 20 * at * MS, "dur_ns": int(20 * MS * every * share)} for at in range(10, 60, every)]
    return {"steps": steps(60, 20 * MS), "evaluations": evaluations}


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ((0.2, 0.0, 0.0, 0.0), [((0,), 0.2)]),
        ((0.03, 0.0, 0.0, 0.0), [((0,), 0.03)]),  # all others wait for it
        ((0.2, 0.2, 0.2, 0.2), [((), 0.2)]),
        ((0.3, 0.15, 0.15, 0.15), [((), 0.15)]),  # the whole job has what all have alike
        ((0.02, 0.02, 0.02, 0.02), []),  # what is wanted of a training
        ((0.0, 0.0, 0.0, 0.0), []),
    ],
)
def test_who_evaluates_is_told(healthy: Labelled, shares: tuple[float, ...], said: list[Any]) -> None:
    records = [evaluating(share) if share else {**evaluating(0.1), "evaluations": []} for share in shares]
    measures = with_sidecars(healthy, *records)
    shown = [(one.ranks, one.most_us / measures.step_us) for one in candidates(ID, measures)]
    assert shown == [(ranks, pytest.approx(share, rel=0.1)) for ranks, share in said]


def test_a_job_of_one_rank_that_evaluates_is_told(healthy: Labelled) -> None:
    (said,) = candidates(ID, with_sidecars(run_of(healthy.job.ranks[:1]), evaluating(0.2)))
    assert not said.ranks and "takes 20 % of the time" in said.summary


@pytest.mark.parametrize(("waited_ns", "ranks"), [(400_000_000, []), (0, [(0,)])])
def test_a_rank_that_had_no_cpu_does_not_evaluate_alone(healthy: Labelled, waited_ns: int, ranks: list[Any]) -> None:
    waits = [{"cpu_waits": {"run": {"dur_ns": 10**9, "cpu_ns": 10**8, "waited_ns": ns}}} for ns in (waited_ns, 0, 0, 0)]
    records = [evaluating(share) | each for share, each in zip((0.2, 0.02, 0.02, 0.02), waits, strict=True)]
    assert [one.ranks for one in candidates(ID, on_cpu(healthy, *records))] == ranks


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


@pytest.mark.parametrize(
    ("chore", "beside", "bands"),
    [(scores, 20, [1.0]), (scores, 5, []), (loss, 20, []), (scores_and_fetches, 20, [0.5])],
)
def test_a_model_that_all_ranks_call_beside_the_passes(
    tmp_path: Path, chore: Chore, beside: int, bands: list[float]
) -> None:
    """Shares of 100 samples a rank. A loss is part of the step; what ends before the batch is fetched is no teacher."""
    updates = partial(Script.host, name="ddprof::optimizer", dur_us=50.0, cat="user_annotation")
    ranks = [cpu_loop(tmp_path, before=chore, optimizer=updates, rank=rank) for rank in range(2)]
    seen = [sampled(facts, {"forward": 5_000}, samples=beside) for facts in ranks]
    rest = totals(("backward", 0, 100 - beside), time_ns=[5_000 * (100 - beside) // beside])  # of its outermost stack
    whole = [replace(facts, script_totals=concat(SCRIPT_TOTALS, [facts.script_totals, rest])) for facts in seen]
    said = candidates(ID, run_of(whole).measures)
    assert [one.band for one in said] == bands
    for one in said:
        assert not one.ranks and one.is_bound and "takes 20 % of the time, in train.py:60 score()" in one.summary
        assert one.evidence[0].text == "40 of 200 samples of all ranks are in it"
        assert ("after the optimizer's step" in one.summary) is (one.band < 1)


def test_a_model_that_one_rank_at_a_time_calls_costs_what_all_of_them_take(tmp_path: Path) -> None:
    def chore(rank: int) -> Chore:
        turn = count(rank)
        return lambda script: scores(script) if next(turn) % 2 else operators(script, "mul", count=20)

    ranks = [cpu_loop(tmp_path, before=chore(rank), rank=rank) for rank in range(2)]
    rest = totals(("backward", 0, 80), time_ns=[20_000])
    seen = [sampled(facts, {"forward": 5_000}, samples=20) for facts in ranks]
    run = run_of([replace(f, script_totals=concat(SCRIPT_TOTALS, [f.script_totals, rest])) for f in seen])
    said = candidate(ID, run.measures)
    assert "on one rank at a time, takes 40 % of the time, in train.py:60 score()" in said.summary
    assert not said.ranks and not candidates("straggler.imbalance", run.measures)  # which would tell the same time


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
