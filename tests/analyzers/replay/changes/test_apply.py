"""Changes combine in any order, and the same one twice counts once."""

from __future__ import annotations

import numpy as np
from labelled_runs import Runs

from ddprof.analyzers.replay.changes.apply import scenario_of
from ddprof.findings import Change


def test_changes_combine_in_any_order(labelled: Runs) -> None:
    prices = labelled("straggler.compute").pricer
    first, second = Change("scale_compute", (2,), (1.3,)), Change("no_sync")
    assert prices.step_us((first, second)) == prices.step_us((second, first))
    assert prices.step_us((first, second)) <= min(prices.step_us((first,)), prices.step_us((second,))) * (1 + 1e-6)


def test_the_same_change_twice_is_that_change(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    change = Change("scale_compute", (2,), (1.3,))
    once = scenario_of((change,), run.pricer.graph, run.measures)
    twice = scenario_of((change, change), run.pricer.graph, run.measures)
    assert np.array_equal(once.dur_ns[2], twice.dur_ns[2])
