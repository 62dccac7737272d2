"""Averages that a few odd values do not move."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddprof.averages import interquartile_mean, middle_half, typical, typical_row, weighted_median

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40).map(np.array)


def test_a_quarter_at_either_end_does_not_count() -> None:
    values = np.array([5.0, -1e9, 6.0, 1e9, 7.0, 8.0, 9.0, 10.0])
    assert middle_half(values).tolist() == [2, 4, 5, 6]
    assert interquartile_mean(values) == pytest.approx(7.5)
    assert interquartile_mean(np.array([3.0])) == 3.0


def test_of_two_the_smaller_is_typical() -> None:
    assert typical([3.0, 1.0]) == 1.0
    assert typical(np.array([9.0, 1.0, 5.0])) == 5.0
    assert typical_row(np.array([[3.0, 1.0], [2.0, 8.0]])).tolist() == [2.0, 1.0]
    with pytest.raises(IndexError):
        typical([])


@given(VALUES)
def test_a_typical_value_occurs_and_half_are_no_smaller(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    found = typical(values)
    assert found in values
    assert (values <= found).sum() * 2 >= len(values) <= (values >= found).sum() * 2


@given(VALUES)
def test_it_lies_between_the_quartiles_that_remain(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    kept = values[middle_half(values)]
    assert len(kept) >= max(1, len(values) // 2)
    assert np.all(np.diff(kept) >= 0)
    assert kept.min() - 1e-3 <= interquartile_mean(values) <= kept.max() + 1e-3


def test_a_weighted_median_is_where_half_of_the_weight_is_reached() -> None:
    assert weighted_median(np.array([3.0, 1.0, 2.0]), np.array([5.0, 1.0, 1.0])) == 3.0
    assert weighted_median(np.array([1.0, 2.0]), np.array([1.0, 1.0])) == 1.0
