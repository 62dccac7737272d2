"""The loader planner: its advice against the generator's sweep."""

from __future__ import annotations

from labelled_runs import Runs

from ddprof.analyzers.planning.facts import Present
from ddprof.analyzers.planning.loader import plan_loader


def test_the_advised_workers_are_as_good_as_the_best_of_the_sweep(labelled: Runs) -> None:
    run = labelled("input.starved")
    truth = {int(k): us for k, us in run.label["faults"][0]["sweep"]["num_workers"].items()}
    plan = plan_loader(run.pricer, Present(num_workers=2))
    assert truth[plan.advised_workers] <= min(truth.values()) * 1.03
    assert plan.advised_workers <= 8
    assert plan.kind is None and plan.source == "arrivals"
