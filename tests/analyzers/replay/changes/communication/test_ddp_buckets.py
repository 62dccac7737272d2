"""The schedule of gradient buckets: its closed form, and DDP's own rule for closing them."""

import numpy as np
import pytest

from ddprof.analyzers.job.traffic.cost import CostModel
from ddprof.analyzers.job.traffic.transfer_curve import TransferCurve
from ddprof.analyzers.replay.changes.communication.ddp_buckets import Reduction, planned, scheduled_end_ns
from ddprof.analyzers.replay.graph.backward import Gradients

MIB = 2.0**20


def _pass(total_mb: float, backward_ns: int, gradients: Gradients | None = None) -> Reduction:
    return Reduction({}, np.array([total_mb * MIB]), np.array([backward_ns]), 0, 2 * backward_ns, gradients)


def test_the_schedule_agrees_with_the_closed_form() -> None:
    """T = b T_bwd / P + (P / b) alpha + f P / B where communication cannot keep up, least at b = P sqrt(alpha / T)."""
    total, backward_ns, alpha, rate = 100.0, 10_000_000, 400_000.0, 2.0
    line = TransferCurve(np.array([MIB]), np.array([alpha + MIB / rate]), CostModel(alpha, rate), False)
    times = {}
    for cap in (5.0, 10.0, 20.0, 25.0, 50.0):
        times[cap] = scheduled_end_ns(*planned(_pass(total, backward_ns), cap * MIB, cap * MIB), line)
        exact = cap / total * backward_ns + total / cap * alpha + total * MIB / rate
        assert times[cap] == pytest.approx(exact, rel=1e-6)
    assert min(times, key=lambda cap: times[cap]) == pytest.approx(total * (alpha / backward_ns) ** 0.5, abs=5.0)


def test_buckets_close_as_ddp_closes_them() -> None:
    """With the parameter that reaches the limit; the first bucket has a limit of its own."""
    gradients = Gradients(np.array([1.0, 2.0, 4.0, 1.0]) * MIB, np.array([-30.0, -20.0, -10.0, 0.0]))
    sizes, ready = planned(_pass(8.0, 100, gradients), 5 * MIB, 1 * MIB)
    assert ((sizes / MIB).tolist(), ready.tolist()) == ([1.0, 6.0, 1.0], [70.0, 90.0, 100.0])
