"""Quantiles of Student's t distribution (Abramowitz and Stegun 26.7.1; the incomplete beta function by Lentz's
continued fraction, as in Numerical Recipes 6.4)."""

from __future__ import annotations

from functools import cache
from math import exp, lgamma, log

_ITERATIONS = 300
_TINY = 1e-300
_PRECISION = 1e-13


@cache
def quantile(tail: float, degrees: int) -> float:
    """The t that is exceeded with probability `tail`, below one half, at so many degrees of freedom."""
    low, high = 0.0, 1.0
    while exceeded(high, degrees) > tail:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if exceeded(middle, degrees) > tail:
            low = middle
        else:
            high = middle
    return high


def exceeded(t: float, degrees: int) -> float:
    """The probability of a value above `t`, which is at least 0."""
    return 0.5 * _incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, _ITERATIONS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            found *= d * c
        if abs(d * c - 1) < _PRECISION:
            break
    return found


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
