"""Latency and bandwidth from points: exact on exact points, abstaining where sizes cannot tell them apart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddprof.analyzers.job.traffic.cost import fit_cost

SIZES = np.repeat(np.array([2**k for k in range(10, 26)], np.int64), 3)


@given(st.floats(1e3, 1e6), st.floats(0.5, 500.0))
def test_exact_points_give_their_own_model(alpha_ns: float, bytes_per_ns: float) -> None:
    model = fit_cost(SIZES, alpha_ns + SIZES / bytes_per_ns)
    assert model is not None
    for size in (2**20, 2**24):
        assert model.time_ns(size) == pytest.approx(alpha_ns + size / bytes_per_ns, rel=1e-3)


def test_noise_moves_the_model_little_and_latency_is_all_of_equal_times_and_never_negative() -> None:
    model = fit_cost(SIZES, (50_000 + SIZES / 100.0) * np.random.default_rng(0).normal(1.0, 0.05, len(SIZES)))
    assert model is not None and model.alpha_ns == pytest.approx(50_000, rel=0.1)
    assert model.bytes_per_ns == pytest.approx(100.0, rel=0.1)
    model = fit_cost(SIZES, np.full(len(SIZES), 80_000.0))
    assert model is not None and model.alpha_ns == pytest.approx(80_000)
    assert model.time_ns(2**30) == pytest.approx(80_000, rel=1e-3)
    model = fit_cost(SIZES, SIZES.astype(float) ** 1.1)
    assert model is not None and model.alpha_ns >= 0


@pytest.mark.parametrize(
    ("sizes", "times"), [(np.full(40, 2**20), np.full(40, 60_000.0)), (np.array([0, 2**20]), np.array([5_000.0, 0.0]))]
)
def test_one_size_or_no_usable_point_says_nothing(sizes: np.ndarray, times: np.ndarray) -> None:
    assert fit_cost(sizes, times) is None
