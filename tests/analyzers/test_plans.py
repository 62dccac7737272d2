"""The bucket and loader planners: their advice against the generator's sweep, and the schedule's closed form."""

from __future__ import annotations

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.job.traffic.cost import CostModel
from ddprof.analyzers.job.traffic.transfer_curve import TransferCurve
from ddprof.analyzers.planning.buckets import plan_buckets
from ddprof.analyzers.planning.curve import Curve, Point
from ddprof.analyzers.planning.facts import Present
from ddprof.analyzers.planning.loader import plan_loader
from ddprof.analyzers.replay.changes.gradient_buckets import Backward, planned, scheduled_end_ns
from ddprof.analyzers.replay.graph.backward import Gradients
from ddprof.errors import NoUsableInput, UsageError

MIB = 2.0**20


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


def test_the_advised_workers_are_as_good_as_the_best_of_the_sweep(labelled: Runs) -> None:
    run = labelled("input.starved")
    truth = {int(k): us for k, us in run.label["faults"][0]["sweep"]["num_workers"].items()}
    plan = plan_loader(run.pricer, Present(num_workers=2))
    assert truth[plan.advised_workers] <= min(truth.values()) * 1.03
    assert plan.advised_workers <= 8
    assert plan.kind is None and plan.source == "arrivals"


def test_plans_need_something_to_plan(labelled: Runs) -> None:
    with pytest.raises(NoUsableInput, match="no buckets to plan: no all-reduce"):
        plan_buckets(labelled("clean.fsdp").pricer, Present())
    with pytest.raises(UsageError, match="--now num_workers"):
        plan_loader(labelled("clean.ddp").pricer, Present())
    with pytest.raises(NoUsableInput, match="kept up"):
        plan_loader(labelled("clean.ddp").pricer, Present(num_workers=2))


def _pass(total_mb: float, backward_ns: int, gradients: Gradients | None = None) -> Backward:
    size = np.array([total_mb * MIB])
    return Backward({}, size, np.array([backward_ns]), 0, 2 * backward_ns, gradients)


def test_the_schedule_agrees_with_the_closed_form() -> None:
    """T = b T_bwd / P + (P / b) alpha + f P / B where communication cannot keep up, least at b = P sqrt(alpha / T)."""
    total, backward_ns, alpha, rate = 100.0, 10_000_000, 400_000.0, 2.0
    line = TransferCurve(np.array([MIB]), np.array([alpha + MIB / rate]), CostModel(alpha, rate), False)
    for cap in (5.0, 10.0, 20.0, 25.0, 50.0):
        sizes, ready = planned(_pass(total, backward_ns), cap * MIB, cap * MIB)
        exact = cap / total * backward_ns + total / cap * alpha + total * MIB / rate
        assert scheduled_end_ns(sizes, ready, line) == pytest.approx(exact, rel=1e-6)
    times = {
        cap: scheduled_end_ns(*planned(_pass(total, backward_ns), cap * MIB, cap * MIB), line)
        for cap in (5.0, 10.0, 20.0, 25.0, 50.0)
    }
    assert min(times, key=lambda cap: times[cap]) == pytest.approx(total * (alpha / backward_ns) ** 0.5, abs=5.0)


def test_buckets_close_as_ddp_closes_them() -> None:
    """With the parameter that reaches the limit; the first bucket has a limit of its own."""
    gradients = Gradients(np.array([1.0, 2.0, 4.0, 1.0]) * MIB, np.array([-30.0, -20.0, -10.0, 0.0]))
    sizes, ready = planned(_pass(8.0, 100, gradients), 5 * MIB, 1 * MIB)
    assert (sizes / MIB).tolist() == [1.0, 6.0, 1.0]
    assert ready.tolist() == [70.0, 90.0, 100.0]


def test_a_curve_keeps_what_is_as_good_as_the_best() -> None:
    points = tuple(Point(v, us) for v, us in ((1, 200.0), (10, 101.0), (25, 100.0), (50, 101.9), (100, 150.0)))
    assert [p.value for p in Curve("k", points).flat] == [10, 25, 50]
    assert Curve("k", points, now=50).advised((25.0,)).value == 50
    assert Curve("k", points, now=1).advised((100.0, 10.0)).value == 10
    assert Curve("k", points).advised(()).value == 25


def test_a_range_grows_with_the_doubt_of_the_change_and_never_goes_below_nothing(labelled: Runs) -> None:
    prices = labelled("clean.ddp").pricer
    step_us = prices.step_us(())
    narrow, wide = (prices.range_us(step_us / 2, doubt_us) for doubt_us in (0.0, 100.0))
    assert narrow[0] < step_us / 2 < narrow[1]
    assert (narrow[0] - wide[0], wide[1] - narrow[1]) == pytest.approx((100.0, 100.0))
    assert prices.range_us(step_us / 2, step_us)[0] == 0.0
