"""Quantiles of Student's t distribution for whole degrees of freedom, by its finite sums (Abramowitz and Stegun 26.7.3
and 26.7.4). Python's `statistics` has the normal distribution alone, and scipy would be a dependency larger than numpy
for this one function.
"""

from __future__ import annotations

from functools import cache
from math import atan, cos, pi, sin, sqrt

_HALVINGS = 200  # of the bracket of a quantile: beyond the precision of a float


@cache
def quantile(tail: float, degrees: int) -> float:
    """The t that is exceeded with probability `tail`, below one half, at so many degrees of freedom."""
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
    """The probability of a value above `t`, which is at least 0."""
    angle = atan(t / sqrt(degrees))
    is_odd = degrees % 2
    term = cos(angle) if is_odd else 1.0
    total = term if degrees > 1 else 0.0
    for number in range(2 + is_odd, degrees - 1, 2):
        term *= cos(angle) ** 2 * (number - 1) / number
        total += term
    within = sin(angle) * total
    return (1 - (2 * (angle + within) / pi if is_odd else within)) / 2
