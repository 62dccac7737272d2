"""How sure a difference of means is, from the steps themselves (Efron 1979, percentile bootstrap)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

LEAST_STEPS = 3  # below this the steps say nothing about their own spread
RESAMPLES = 4000
LEVEL = 0.95
_SEED = 20_240_229  # the same inputs give the same interval, in CI and on a desk


def difference_interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of mean(after) - mean(before), in their unit; None with fewer than three steps on a side.

    Deviations are widened by sqrt(n / (n - 1)): the plain percentile interval is too narrow for a handful of steps. The
    steps of one run share its machine and moment, so what varies only from run to run is not in the interval.
    """
    first, second = _finite(before), _finite(after)
    if min(len(first), len(second)) < LEAST_STEPS:
        return None
    random = np.random.default_rng(_SEED)
    differences = _resampled_means(second, random) - _resampled_means(first, random)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(differences, [tail, 1 - tail])
    return float(low), float(high)


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of a mean, in its unit; None with fewer than three steps."""
    found = _finite(values)
    if len(found) < LEAST_STEPS:
        return None
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(_resampled_means(found, np.random.default_rng(_SEED)), [tail, 1 - tail])
    return float(low), float(high)


def _resampled_means(values: npt.NDArray[np.float64], random: np.random.Generator) -> npt.NDArray[np.float64]:
    count = len(values)
    mean = values.mean()
    widened = mean + (values - mean) * np.sqrt(count / (count - 1))
    drawn: npt.NDArray[np.float64] = widened[random.integers(0, count, (RESAMPLES, count))].mean(axis=1)
    return drawn


def _finite(values: Sequence[float]) -> npt.NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    return array[np.isfinite(array)]
