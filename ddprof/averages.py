"""Averages that outliers do not move."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

NORMAL_MAD = 1.4826  # standard deviation over the median absolute deviation, of a normal distribution


def typical(values: Iterable[float]) -> float:
    """The lower median: of an even number of values the smaller middle one. Raises IndexError for no values.

    Of two ranks the faster one is typical: with one culprit among two, the mean of both would halve the fault.
    """
    ordered = sorted(values)
    return float(ordered[(len(ordered) - 1) // 2])


def typical_row(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The lower median of each column, over the first axis."""
    return np.asarray(np.sort(rows, axis=0)[(len(rows) - 1) // 2])


def typical_of_finite(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The lower median of the finite values of each column, over the first axis; NaN where there is none."""
    known = np.isfinite(rows)
    ordered = np.sort(np.where(known, rows, np.inf), axis=0)
    middle = np.take_along_axis(ordered, np.maximum(known.sum(axis=0, keepdims=True) - 1, 0) // 2, axis=0)[0]
    return np.where(np.isfinite(middle), middle, np.nan)


def weighted_median(values: npt.NDArray[Any], weights: npt.NDArray[Any]) -> float:
    """The smallest value at which half of the total weight is reached. Raises IndexError for no values."""
    order = np.argsort(values, kind="stable")
    reach = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reach, reach[-1] / 2)])


def middle_half(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Positions of the values between the quartiles, lowest value first; at least one where there is any."""
    cut = len(values) // 4
    return np.argsort(values, kind="stable")[cut : len(values) - cut]
