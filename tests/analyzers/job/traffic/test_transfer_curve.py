"""The time of a message from the run's own: its points, the line beyond, and a guess that says it is one."""

import numpy as np
import pytest

from ddprof.analyzers.execution.choose import DEVICE
from ddprof.analyzers.job.traffic.transfer_curve import transfer_curve

MIB = 2.0**20


def test_a_curve_interpolates_its_points_follows_the_line_beyond_and_says_that_it_guesses() -> None:
    sizes = np.array([1, 4, 16, 64]) * MIB
    curve = transfer_curve(sizes, 50e3 + sizes / 10, DEVICE.limits.transfer_prior)
    assert curve is not None and not curve.is_prior
    for size, rel in ((1, 1e-6), (4, 1e-6), (64, 1e-6), (8, 0.05), (256, 0.02)):
        assert curve.time_ns(size * MIB) == pytest.approx(50e3 + size * MIB / 10, rel=rel)
    assert curve.time_ns(0) == 0.0
    curve = transfer_curve(np.full(3, 8 * MIB), np.full(3, 1e6), DEVICE.limits.transfer_prior)
    assert curve is not None and curve.is_prior and curve.time_ns(8 * MIB) == pytest.approx(1e6)
    assert transfer_curve(np.zeros(2), np.ones(2), DEVICE.limits.transfer_prior) is None
