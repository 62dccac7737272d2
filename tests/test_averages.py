"""Averages that a few odd values do not move."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddprof.averages import middle_half, typical, typical_row, weighted_median

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40).map(np.array)


def test_middles_quartiles_and_weighted_medians() -> None:
    values = np.array([5.0, -1e9, 6.0, 1e9, 7.0, 8.0, 9.0, 10.0])
    assert [middle_half(some).tolist() for some in (values, np.array([3.0]))] == [[2, 4, 5, 6], [0]]
    assert typical([3.0, 1.0]) == 1.0 and typical(np.array([9.0, 1.0, 5.0])) == 5.0
    assert typical_row(np.array([[3.0, 1.0], [2.0, 8.0]])).tolist() == [2.0, 1.0]
    with pytest.raises(IndexError):
        typical([])
    assert weighted_median(np.array([3.0, 1.0, 2.0]), np.array([5.0, 1.0, 1.0])) == 3.0
    assert weighted_median(np.array([1.0, 2.0]), np.array([1.0, 1.0])) == 1.0


@given(VALUES)
def test_typical_values_occur_and_means_lie_inside(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    middle, kept = typical(values), values[middle_half(values)]
    assert middle in values and (values <= middle).sum() * 2 >= len(values) <= (values >= middle).sum() * 2
    assert len(kept) >= max(1, len(values) // 2) and np.all(np.diff(kept) >= 0)
