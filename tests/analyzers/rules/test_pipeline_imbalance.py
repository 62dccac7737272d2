"""One stage with more work than the others."""

from dataclasses import replace

import numpy as np
import pytest
from captured import without_peers
from labelled_runs import Runs, abstains, candidate, fires

ID = "pipeline.imbalance"


def test_names_the_heavy_stage_where_peers_are_named_and_neighbours_were_traced(labelled: Runs) -> None:
    assert "stage 1" in fires(labelled(ID), ID, 1).summary
    assert "name no peer" in abstains(ID, without_peers(labelled(ID)))
    run = labelled("slow device in a pipeline")
    assert "were not traced" in abstains(ID, run.only(0, 2))
    measures = labelled("slow link between stages").measures
    work_us = measures.stage_work_us * np.repeat([1.0, 1.9, 1.0, 1.9], len(measures.stage_work_us) // 4)
    said = candidate(ID, replace(measures, stage_work_us=work_us))
    assert said.summary.startswith("pipeline stages 1 and 3 (ranks 1, 3) have up to")
    assert said.also[0][0] == "stages 1 and 3 as fast as the mean of all stages"
    run = labelled("heavy stage, one of its replicas not traced")
    (found,) = (f for f in run.report.findings if f.id == "pipeline.imbalance")
    assert found.ranks == tuple(run.fault["culprit_ranks"])  # the replica that was not traced has the same layers
    saved_us = run.report.steps.wall_us - run.fault["counterfactual_step_us"]
    assert found.recoverable_us.value == pytest.approx(saved_us, rel=0.25)
    assert found.recoverable_us.low < found.recoverable_us.value <= found.recoverable_us.high
