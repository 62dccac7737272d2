"""The headline names what bounds the step."""

import pytest
from labelled_runs import Runs

from ddprof.analyzers.diagnose import diagnose
from ddprof.analyzers.verdict import verdict
from ddprof.report.model import Steps


@pytest.mark.parametrize(("name", "bound"), [("straggler.compute", "straggler"), ("input.starved", "input"),
                                             ("comm.bandwidth_bound", "communication"), ("clean.ddp", "compute"),
                                             ("host.gc", "host"), ("pipeline.imbalance", "pipeline")])  # fmt: skip
def test_the_headline_names_the_bound(labelled: Runs, name: str, bound: str) -> None:
    run = labelled(name)
    said = verdict(run.measures, diagnose(run.measures, run.pricer), Steps(1, "profiler_step", run.measures.step_us))
    assert said.bound == bound
    assert not said.headline[0].islower()
    assert ("fixing it saves" in said.headline) == (name != "clean.ddp")
