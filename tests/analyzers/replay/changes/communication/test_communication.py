"""The schedule of gradient buckets against its closed form; other units, gathers ahead and parameters that are kept."""

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.job.traffic.cost import CostModel, TransferCurve
from ddprof.analyzers.replay.changes.communication.ddp_buckets import Gradients, Reduction, planned, scheduled_end_ns
from ddprof.analyzers.replay.changes.communication.sharded_units import scheduled
from ddprof.findings import Change
from ddprof.tables import Array

MERGED, AHEAD, KEPT = Change("merge_units", (), (3.0,)), Change("prefetch_gathers"), Change("keep_parameters")
MIB, FOUR, NONE = 2.0**20, np.full(4, 1.0), np.zeros(4)
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
    prices = labelled("gathers when needed").pricer
    assert prices.step_us((AHEAD, KEPT)) <= min(prices.step_us((AHEAD,)), prices.step_us((KEPT,))) + 1.0
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
    exposed = scheduled(gather, compute, reduce, is_ahead=is_ahead)
    assert (exposed.stalls_ns.tolist(), exposed.tail_ns) == (stalls, tail)


def reduction(total_mb: float, backward_ns: int, gradients: Gradients | None = None) -> Reduction:
    return Reduction({}, np.array([total_mb * MIB]), np.array([backward_ns]), 0, 2 * backward_ns, gradients)


def test_the_schedule_agrees_with_the_closed_form() -> None:
    """T = b T_bwd / P + (P / b) alpha + f P / B where communication cannot keep up, least at b = P sqrt(alpha / T)."""
    total, backward_ns, alpha, rate = 100.0, 10_000_000, 400_000.0, 2.0
    line = TransferCurve(np.array([MIB]), np.array([alpha + MIB / rate]), CostModel(alpha, rate), False)
    caps, of_pass = (5.0, 10.0, 20.0, 25.0, 50.0), reduction(total, backward_ns)
    times = {cap: scheduled_end_ns(*planned(of_pass, cap * MIB, cap * MIB), line.time_ns) for cap in caps}
    exact = {cap: cap / total * backward_ns + total / cap * alpha + total * MIB / rate for cap in caps}
    assert times == pytest.approx(exact, rel=1e-6)
    assert min(times, key=lambda cap: times[cap]) == pytest.approx(total * (alpha / backward_ns) ** 0.5, abs=5.0)


def test_buckets_close_as_ddp_closes_them() -> None:
    """With the parameter that reaches the limit; the first bucket has a limit of its own."""
    gradients = Gradients(np.array([1.0, 2.0, 4.0, 1.0]) * MIB, np.array([-30.0, -20.0, -10.0, 0.0]))
    sizes, ready = planned(reduction(8.0, 100, gradients), 5 * MIB, 1 * MIB)
    assert ((sizes / MIB).tolist(), ready.tolist()) == ([1.0, 6.0, 1.0], [70.0, 90.0, 100.0])
