"""Every statistical test and interval of ddprof: bootstrap of means, Student's t, prediction, pairs, binomial.

Python's `statistics` has the normal distribution alone, and scipy would be a dependency larger than numpy for these few
functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import atan, comb, cos, exp, pi, sin, sqrt
from statistics import fmean, stdev

import numpy as np
import numpy.typing as npt

LEAST_STEPS = 3  # below this the steps say nothing about their own spread
MAX_CHANCE = 0.01  # probability, over all ranks, of a count such as "last in k of n" by chance
TAIL = 0.025  # of either side of a 95 % interval
RESAMPLES = 4000  # a percentile bootstrap wants 1,000 or more (Efron and Tibshirani 1993)
FLIPS = 10_000  # resolves chances of 0.0001
MOST_PARTS = 50  # of a series that is searched for a change: 2 % of a run
MOST_FLIPPED = 200  # signs, of 16 MB for all draws
_SEED = 20_240_229  # the same inputs give the same interval, in CI and on a desk
_HALVINGS = 200  # of the bracket of a quantile: beyond the precision of a float
MOST_EXACT = 400  # trials whose exact sum adds something to the normal approximation


def difference_interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of mean(after) - mean(before), in their unit; None with fewer than three steps on a side.

    Percentile bootstrap (Efron 1979). Deviations are widened by sqrt(n / (n - 1)): the plain percentile interval is too
    narrow for a handful of steps. The steps of one run share its machine and moment, so what varies only from run to
    run is not in the interval.
    """
    first, second = _finite(before), _finite(after)
    if min(len(first), len(second)) < LEAST_STEPS:
        return None
    random = np.random.default_rng(_SEED)
    return _middle(_resampled_means(second, random) - _resampled_means(first, random))


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of a mean by bootstrap, in its unit; None with fewer than three steps."""
    finite = _finite(values)
    return None if len(finite) < LEAST_STEPS else _middle(_resampled_means(finite, np.random.default_rng(_SEED)))


def _middle(drawn: npt.NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(drawn, [TAIL, 1 - TAIL])
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


@cache
def quantile(tail: float, degrees: int) -> float:
    """Student's t that is exceeded with probability `tail` (below one half) at `degrees` of freedom."""
    low, high = 0.0, 1.0
    while exceeded(high, degrees) > tail:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if exceeded(middle, degrees) > tail:
            low = middle
        else:
            high = middle
    return high


def exceeded(t: float, degrees: int) -> float:
    """P(T > t) for t >= 0 by the finite sums of Student's distribution for integer degrees of freedom (Abramowitz and
    Stegun 26.7.3 and 26.7.4).
    """
    angle = atan(t / sqrt(degrees))
    is_odd = degrees % 2
    term = cos(angle) if is_odd else 1.0
    total = term if degrees > 1 else 0.0
    for number in range(2 + is_odd, degrees - 1, 2):
        term *= cos(angle) ** 2 * (number - 1) / number
        total += term
    within = sin(angle) * total
    return (1 - (2 * (angle + within) / pi if is_odd else within)) / 2


def half_width(values: Sequence[float], tail: float) -> float:
    """Half the t interval of the mean of at least two values, leaving `tail` on either side."""
    return quantile(tail, len(values) - 1) * stdev(values) / sqrt(len(values))


def chance_of_mean(differences: npt.NDArray[np.float64]) -> float:
    """Probability of a mean at least as large where each of the paired differences might as well have the other sign.

    Randomisation test (Fisher 1935): no distribution is assumed. A few large differences of one sign, such as a sleep
    in every fourth step, have a t of two or three however unlikely they are. Of long runs neighbours keep one sign.
    """
    sums = np.array([part.sum() for part in np.array_split(differences, min(len(differences), MOST_FLIPPED))])
    signs = np.random.default_rng(_SEED).choice((-1.0, 1.0), (FLIPS, len(sums)))
    at_least = int((signs @ sums >= sums.sum()).sum())
    return (at_least + 1) / (FLIPS + 1)


def chance_of_rhythm(numbers: npt.NDArray[np.int64]) -> float:
    """Probability that events at random steps are all a multiple of so many steps apart; 1 for fewer than three.

    `numbers`: of their steps, ascending. Each gap is a multiple of p by chance once in p times. The sum over all p that
    are at least the one seen is below twice its first term.
    """
    gaps = np.diff(numbers)
    apart = int(np.gcd.reduce(gaps)) if len(gaps) > 1 else 1
    return min(1.0, 2.0 * float(apart) ** -len(gaps))


def change_point(values: npt.NDArray[np.float64]) -> int | None:
    """Index at which the mean changes; None where another order of the same values has as clear a change with a chance
    of MAX_CHANCE. Long series are cut into MOST_PARTS; two parts or more lie on each side.

    Permutation test of the largest sum of squares between the two sides.
    """
    size = -(-len(values) // MOST_PARTS)
    if len(values) < 2 * LEAST_STEPS:
        return None
    parts = values[: len(values) // size * size].reshape(-1, size).mean(axis=1)
    before = np.arange(2, len(parts) - 1)
    orders = np.random.default_rng(_SEED).permuted(np.tile(parts, (int(10 / MAX_CHANCE), 1)), axis=1)
    sums = np.cumsum(np.vstack([parts, orders]) - parts.mean(), axis=1)[:, before - 1]
    between = sums**2 / (before * (len(parts) - before))
    if np.mean(between[1:].max(axis=1) >= between[0].max()) >= MAX_CHANCE:
        return None
    return int(before[np.argmax(between[0])]) * size


def is_none_of(value: float, others: Sequence[float]) -> bool:
    """True where `value` lies outside the 95 % prediction interval of one more value like the two or more others."""
    reach = quantile(TAIL, len(others) - 1) * stdev(others) * sqrt(1 + 1 / len(others))
    return abs(value - fmean(others)) > reach


def trend(values: Sequence[float], tail: float) -> tuple[float, float] | None:
    """First and last value of the least-squares line through three or more values, equally far apart; None where its
    slope may be chance: as far from zero with probability `tail` on that side.
    """
    count, points = len(values), np.asarray(values, np.float64)
    place = np.arange(count) - (count - 1) / 2
    slope = float(place @ points / (place @ place))
    rest = points - points.mean() - slope * place
    error = sqrt(float(rest @ rest) / (count - 2) / float(place @ place))
    if abs(slope) <= quantile(tail, count - 2) * error:
        return None
    return float(points.mean() + slope * place[0]), float(points.mean() + slope * place[-1])


def binomial_tail(successes: int, trials: int, probability: float) -> float:
    """P(X >= successes) of a binomial; the test of "last in k of n" against 1/N."""
    if trials > MOST_EXACT:
        mean, spread = trials * probability, (trials * probability * (1 - probability)) ** 0.5
        return 0.5 * exp(-(max(0.0, (successes - mean) / spread) ** 2) / 2)
    return float(
        sum(comb(trials, k) * probability**k * (1 - probability) ** (trials - k) for k in range(successes, trials + 1))
    )
