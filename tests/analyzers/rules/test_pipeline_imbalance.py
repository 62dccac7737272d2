"""One stage with more work than the others."""

import pytest
from captured import without_peers
from labelled_runs import Runs, abstains, fires

ID = "pipeline.imbalance"


def test_names_the_heavy_stage_where_peers_are_named_and_neighbours_were_traced(labelled: Runs) -> None:
    assert "stage 1" in fires(labelled(ID), ID, 1).summary
    assert "name no peer" in abstains(ID, without_peers(labelled(ID)))
    run = labelled("slow device in a pipeline")
    assert "were not traced" in abstains(ID, run.only(0, 2))
    run = labelled("heavy stage, one of its replicas not traced")
    (found,) = (f for f in run.report.findings if f.id == "pipeline.imbalance")
    assert found.ranks == tuple(run.fault["culprit_ranks"])  # the replica that was not traced has the same layers
    saved_us = run.report.steps.wall_us - run.fault["counterfactual_step_us"]
    assert found.recoverable_us.value == pytest.approx(saved_us, rel=0.25)
    assert found.recoverable_us.low < found.recoverable_us.value <= found.recoverable_us.high
