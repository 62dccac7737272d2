"""Lists of JSON values to int64 columns, exactly: microseconds to nanoseconds, identifiers, sizes."""

from __future__ import annotations

import math
from array import array
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from ddprof.tables import NULL, Array

# Below 2**43 us (101 days) a float64 is within 0.49 ns of the decimal it was read from. Rounding the fraction of a
# microsecond (exact in float64) to whole ns then gives back the digits written, up to three decimals. Rounding
# us * 1000 instead would not: above 2**42 us the product is rounded to half ns first, and then to the wrong side.
EXACT_FLOAT_US = float(2**43)
MAX_NS = 2**62  # year 2116 as unix time; what lies beyond is overflow, not a time
_MAX_US = MAX_NS // 1000
# Farther than this from the middle event an event belongs to no recording: profilers record minutes, some a day.
FARTHEST_NS = 30 * 86_400 * 10**9
# The largest rank that a file is believed to state: ten times the accelerators of the largest clusters announced (some
# 100,000). What lies beyond is damage, or meant to make a list as long as it says.
LARGEST_RANK = 2**20
# Of the ranks of one file all below this are believed, beyond it those that leave no more than 15 of 16 unnamed.
_SMALL_JOB, _HOLES = 1024, 16


class InexactFloats(Exception):
    """Raised on fractional microseconds too large for float64: the text must be decoded digit by digit."""


def to_ns(values: list[Any]) -> Array:
    """Microseconds (int, float, str, Decimal, None, mixed) to int64 nanoseconds; NULL where it is not a time.

    Raises InexactFloats where a float has already lost digits.
    """
    whole = _converted(values, "q")
    if whole is not None:
        return _whole_us(whole)
    floats = _converted(values, "d")
    if floats is not None and len(floats):
        low, high = floats.min(), floats.max()
        if low > -EXACT_FLOAT_US and high < EXACT_FLOAT_US:  # neither holds where there is a NaN
            below = np.floor(floats)
            exact: Array = below.astype(np.int64) * 1000 + np.rint((floats - below) * 1000.0).astype(np.int64)
            return exact
    return _slow_ns(values)


def lengths_ns(start_ns: Array, end_ns: Array) -> Array:
    """Lengths from starts to ends, negative where they are swapped; NULL where either is missing or not a time."""
    usable = _are_times(start_ns) & _are_times(end_ns)
    return np.where(usable, np.where(usable, end_ns, 0) - np.where(usable, start_ns, 0), NULL)


def near_each_other(times_ns: Array) -> Array:
    """Mask of times that may be of one recording: no farther than FARTHEST_NS from the median."""
    usable = _are_times(times_ns)
    given = times_ns[usable]
    if not len(given) or int(given.max()) - int(given.min()) <= FARTHEST_NS:
        return usable
    middle = int(np.partition(given, len(given) // 2)[len(given) // 2])
    return usable & (times_ns >= middle - FARTHEST_NS) & (times_ns <= middle + FARTHEST_NS)


def _are_times(values_ns: Array) -> Array:
    return (values_ns > -MAX_NS) & (values_ns < MAX_NS)


def _converted(values: list[Any], kind: str) -> Array | None:
    """The values where all are 64-bit integers ("q") or numbers ("d"), else None; at a quarter of numpy's cost."""
    try:
        return np.frombuffer(array(kind, values), kind) if values else np.empty(0, kind)
    except (TypeError, OverflowError):
        return None


def _whole_us(values: Array) -> Array:
    if len(values) and (values.max() >= _MAX_US or values.min() <= -_MAX_US):
        usable = (values < _MAX_US) & (values > -_MAX_US)
        return np.where(usable, np.where(usable, values, 0) * 1000, NULL)
    return values * 1000


def _slow_ns(values: list[Any]) -> Array:
    if any(type(v) is float and EXACT_FLOAT_US <= abs(v) < math.inf for v in values):
        raise InexactFloats
    return np.array([_one_ns(v) for v in values], np.int64)


def _one_ns(value: Any) -> int:
    if value is None or isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return NULL
    try:
        us = Decimal(str(value))
    except InvalidOperation:
        return NULL
    if not us.is_finite() or not -_MAX_US < us < _MAX_US:  # before any arithmetic: 1e999999999 has as many digits
        return NULL
    return int((us * 1000).to_integral_value())


def one_rank(value: Any) -> int | None:
    """A rank, or a number of ranks, that a file states; None where it is missing or implausible."""
    number = one_int(value)
    return number if 0 <= number <= LARGEST_RANK else None


def without_holes(ranks: Array) -> Array:
    """Mask of plausible ranks in one file: numbers have no large holes, so one far beyond is damage."""
    return (ranks >= 0) & (ranks <= min(max(_SMALL_JOB, _HOLES * len(np.unique(ranks))), LARGEST_RANK))


def to_int64(values: list[Any]) -> Array:
    """Integers (or their text) to int64; NULL where missing or too large."""
    whole = _converted(values, "q")
    if whole is not None:
        return whole
    return np.array([one_int(v) for v in values], np.int64)


def one_int(value: Any) -> int:
    """An integer, its text, or a whole float; NULL for anything else."""
    if type(value) is int:  # nearly all, and none of the checks below
        return value if NULL < value < -NULL else NULL
    if isinstance(value, bool) or value is None:
        return NULL
    if isinstance(value, float | Decimal):
        value = int(value) if -MAX_NS < value < MAX_NS and value % 1 == 0 else None
    elif isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            return NULL
    return value if isinstance(value, int) and NULL < value < -NULL else NULL


def one_float(text: str | bytes | None) -> float | None:
    """A number from text, finite; None otherwise."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
