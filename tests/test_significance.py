"""Quantiles of Student's t against printed tables (Abramowitz and Stegun, table 26.10), and chances by their counts."""

import numpy as np
import pytest

from ddprof.significance import MAX_CHANCE, chance_of_mean, chance_of_rhythm, change_point, exceeded, quantile

TABLE = [(0.25, 1, 1.000), (0.05, 1, 6.314), (0.025, 2, 4.303), (0.005, 3, 5.841)]
TABLE += [(0.025, 5, 2.571), (0.01, 9, 2.821), (0.0005, 10, 4.587), (0.025, 120, 1.980)]


@pytest.mark.parametrize(("tail", "degrees", "t"), TABLE)
def test_quantiles_are_those_of_the_table(tail: float, degrees: int, t: float) -> None:
    assert quantile(tail, degrees) == pytest.approx(t, abs=6e-4)
    assert exceeded(quantile(tail, degrees), degrees) == pytest.approx(tail, rel=1e-6)
    assert exceeded(0.0, 4) == pytest.approx(0.5)


@pytest.mark.parametrize(("long", "at_most"), [(8, 2**-7), (12, 0.001), (0, 1.0)])
def test_the_chance_of_a_mean_is_that_of_its_signs(long: int, at_most: float) -> None:
    """n large differences of one sign among small ones: one in 2**n draws of signs has them all on that side."""
    differences = np.random.default_rng(0).normal(0.0, 0.1, 40) + np.where(np.arange(40) < long, 20.0, 0.0)
    assert chance_of_mean(differences) <= at_most
    assert long or chance_of_mean(differences) > MAX_CHANCE
    assert [chance_of_rhythm(np.array(n)) for n in ([1, 13, 25, 49], [3, 15], [3, 9, 14])] == [2 / 12**3, 1, 1]


@pytest.mark.parametrize(("steps", "at"), [(39, 4), (400, 104), (5, None)])
def test_a_change_of_the_mean_is_found_where_it_is_and_not_in_noise(steps: int, at: int | None) -> None:
    noise = np.random.default_rng(1).normal(0.0, 1.0, steps)
    assert change_point(noise + 9.0 * (np.arange(steps) >= (at or 2))) == at and change_point(noise) is None
