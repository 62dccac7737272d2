"""Options of a run's sharding follow the formulas."""

import pytest
from labelled_runs import Runs

from ddprof.slices.planning.sharding import plan_sharding


def test_options_of_a_run_follow_the_formulas_and_an_fsdp_run_is_recognised(labelled: Runs) -> None:
    plan = plan_sharding(labelled("clean.ddp").pricer)
    assert plan.params == pytest.approx(46e6, rel=0.01) and plan.parameter_bytes == 2.0
    states = {o.name: o.state_bytes for o in plan.options}
    assert states["DDP"] == pytest.approx(plan.params * (4 + plan.optimizer_bytes))
    assert states["FSDP / ZeRO-3"] == pytest.approx(states["DDP"] / 4)
    now = next(o for o in plan.options if o.is_now)
    assert now.name == "DDP" and now.step_us == pytest.approx(plan.step_us, rel=0.03)
    assert plan.compression is not None and plan.compression.half_saves_us <= plan.compression.exposed_us + 1
    plan = plan_sharding(labelled("clean.fsdp").pricer)
    assert next(o for o in plan.options if o.is_now).name == "FSDP / ZeRO-3"
