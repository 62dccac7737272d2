"""Groups that are slow for the same message cost what they take in the steps."""

import numpy as np
import pytest
from labelled_runs import run_of, sample_run

from ddprof.analyzers.facts.kernels import with_steps
from ddprof.analyzers.job.traffic.links import slow_groups


@pytest.mark.parametrize("kept", [0, 1])
def test_transfers_of_a_step_that_is_left_out_cost_no_step_time(kept: int) -> None:
    whole = sample_run("slow_link").job
    cut = run_of([with_steps(facts, np.array([kept])) for facts in whole.ranks]).job
    excess_us = {slow.role: slow.excess_us for slow in slow_groups(cut)}
    assert excess_us == pytest.approx({slow.role: slow.excess_us for slow in slow_groups(whole)}, rel=0.02)
