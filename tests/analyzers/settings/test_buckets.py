"""The bucket planner: its advice against the generator's sweep."""

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.settings.buckets import plan_buckets
from ddprof.analyzers.settings.loader import plan_loader
from ddprof.analyzers.settings.present import Present
from ddprof.errors import NoUsableInput, UsageError


@pytest.mark.parametrize("name", ["comm.latency_bound", "comm.no_overlap"])
def test_the_advised_cap_is_as_good_as_the_best_of_the_sweep(labelled: Runs, name: str) -> None:
    run = labelled(name)
    truth = {float(k): us for k, us in run.label["faults"][0]["sweep"]["bucket_cap_mb"].items()}
    plan = plan_buckets(run.pricer, Present())
    true_us = float(np.interp(plan.advised_mb, list(truth), list(truth.values())))
    assert true_us <= min(truth.values()) * 1.03
    assert plan.low_us <= true_us <= plan.high_us
    assert plan.gradient_mb == pytest.approx(87.7, rel=0.01)
    assert plan.caps.best in plan.caps.flat


def test_plans_need_something_to_plan(labelled: Runs) -> None:
    with pytest.raises(NoUsableInput, match="no buckets to plan: no all-reduce"):
        plan_buckets(labelled("clean.fsdp").pricer, Present())
    with pytest.raises(UsageError, match="--now num_workers"):
        plan_loader(labelled("clean.ddp").pricer, Present())
    with pytest.raises(NoUsableInput, match="kept up"):
        plan_loader(labelled("clean.ddp").pricer, Present(num_workers=2))
