"""Other units, gathers ahead and parameters that are kept: prices against what the trace generator simulates."""

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.replay.changes.communication.sharded_units import scheduled
from ddprof.findings import Change
from ddprof.tables import Array

MERGED = Change("merge_units", (), (3.0,))
AHEAD = Change("prefetch_gathers")
KEPT = Change("keep_parameters")
FOUR = np.full(4, 1.0)
NONE = np.zeros(4)
KEPT_NS = np.array([0.0, 1.0, 1.0, 1.0])  # backward: the last unit is there


@pytest.mark.parametrize(
    ("name", "change", "gains"),
    [
        *(("three units a layer", MERGED, True), ("gathers when needed", AHEAD, True), ("comm.sharding", KEPT, True)),
        *((name, AHEAD, False) for name in ("clean.fsdp", "comm.sharding", "three units a layer")),  # they are ahead
    ],
)
def test_the_price_is_what_the_change_gains(labelled: Runs, name: str, change: Change, gains: bool) -> None:
    run = labelled(name)
    after_us, rel = (run.label["counterfactual_step_us"], 0.02) if gains else (run.measures.step_us, 0.005)
    assert run.pricer.step_us((change,)) == pytest.approx(after_us, rel=rel)


def test_changes_of_units_hold_together_and_what_nothing_hides_adds_up(labelled: Runs) -> None:
    run = labelled("gathers when needed")
    assert run.pricer.step_us((AHEAD, KEPT)) <= min(run.pricer.step_us((AHEAD,)), run.pricer.step_us((KEPT,))) + 1.0
    run = labelled("clean.ddp")
    for change in (MERGED, AHEAD, KEPT):
        assert run.pricer.step_us((change,)) == pytest.approx(run.measures.step_us, rel=1e-6)
    assert scheduled(3 * FOUR, NONE, 2 * FOUR, is_ahead=True).exposed_ns == pytest.approx(4 * 3 + 4 * 2)


@pytest.mark.parametrize(
    ("gather", "compute", "reduce", "is_ahead", "stalls", "tail"),
    [
        (FOUR, 5 * FOUR, NONE, False, [1, 1, 1, 1], 0),  # all are exposed
        (FOUR, 5 * FOUR, NONE, True, [1, 0, 0, 0], 0),  # the first is
        (5 * FOUR, FOUR, NONE, True, [5, 4, 4, 4], 0),  # longer than compute: the difference is
        # Reductions delay the gathers behind them: each is launched before the next but one gather.
        (KEPT_NS, 5 * FOUR, FOUR, False, [0, 2, 2, 2], 1),  # a gather and the reduction before it
        (KEPT_NS, 5 * FOUR, FOUR, True, [0, 2, 0, 0], 1),  # nothing launches the first gather early
    ],
)
def test_exposed(gather: Array, compute: Array, reduce: Array, is_ahead: bool, stalls: list[int], tail: int) -> None:
    found = scheduled(gather, compute, reduce, is_ahead=is_ahead)
    assert (found.stalls_ns.tolist(), found.tail_ns) == (stalls, tail)
