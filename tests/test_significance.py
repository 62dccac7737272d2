"""Quantiles of Student's t against printed tables (Abramowitz and Stegun, table 26.10)."""

import pytest

from ddprof.significance import exceeded, quantile


@pytest.mark.parametrize(
    ("tail", "degrees", "t"),
    [
        *((0.25, 1, 1.000), (0.05, 1, 6.314), (0.025, 2, 4.303), (0.005, 3, 5.841)),
        *((0.025, 5, 2.571), (0.01, 9, 2.821), (0.0005, 10, 4.587), (0.025, 120, 1.980)),
    ],
)
def test_quantiles_are_those_of_the_table(tail: float, degrees: int, t: float) -> None:
    assert quantile(tail, degrees) == pytest.approx(t, abs=6e-4)
    assert exceeded(quantile(tail, degrees), degrees) == pytest.approx(tail, rel=1e-6)
    assert exceeded(0.0, 4) == pytest.approx(0.5)
