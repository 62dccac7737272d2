"""More ranks never make a rank faster."""

import pytest
from labelled_runs import Runs

from ddprof.errors import NoUsableInput
from ddprof.slices.planning.scale_out import scale_out


def test_more_ranks_never_make_a_rank_faster(labelled: Runs) -> None:
    plan = scale_out(labelled("comm.no_overlap").pricer, (2, 4, 8, 64), per_node=8, node_factor=4.0)
    steps = [p.step_us for p in plan.points]
    assert steps == sorted(steps) and next(p for p in plan.points if p.world == 4).step_us == plan.step_us
    assert all(p.low_us <= p.step_us <= p.high_us for p in plan.points)
    with pytest.raises(NoUsableInput, match="nothing to scale"):
        scale_out(labelled("clean.fsdp").pricer, (8,), 8, 4.0)
