"""Microseconds as written become nanoseconds exactly."""

import json
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddprof.readers import numbers
from ddprof.readers.numbers import LARGEST_RANK, InexactFloats, one_int, one_rank, to_int64, to_ns
from ddprof.tables import NULL

_LIMIT_NS = int(numbers.EXACT_FLOAT_US) * 1000
RELATIVE_NS = st.integers(-(10**9), _LIMIT_NS - 1) | st.integers(_LIMIT_NS // 2, _LIMIT_NS - 1)


@given(st.lists(RELATIVE_NS, min_size=1))
def test_fractions_below_the_limit_are_exact_through_float64(times_ns: list[int]) -> None:
    assert to_ns([float(f"{Decimal(ns) / 1000:f}") for ns in times_ns]).tolist() == times_ns


def test_fractions_are_exact_or_refused_as_floats_and_integers_may_be_text() -> None:
    assert to_ns([json.loads(f"{Decimal(_LIMIT_NS - 1) / 1000:f}")]).tolist() == [_LIMIT_NS - 1]
    with pytest.raises(InexactFloats):
        to_ns([1694128201435418.123])
    assert to_ns([Decimal("1694128201435418.123"), 5]).tolist() == [1694128201435418123, 5000]
    assert to_int64([1, "128", 3.0, None, "x", 10159970886766084423]).tolist() == [1, 128, 3, NULL, NULL, NULL]
    assert to_int64([1, 2]).dtype == np.int64 and one_int(float("nan")) == NULL


TIMES = [(1694128201435418, 1694128201435418000), ("1694128201435418", 1694128201435418000)]
TIMES += [("8306017670485.5", 8306017670485500)]
NO_TIMES = (None, "soon", float("nan"), float("inf"), True, [1], Decimal("1e300"), 2**70)


@pytest.mark.parametrize(("value", "expected"), [*TIMES, *((odd, NULL) for odd in NO_TIMES)])
def test_odd_values(value: object, expected: int) -> None:
    assert to_ns([value, None]).tolist() == [expected, NULL]


@pytest.mark.parametrize("value", [-1, LARGEST_RANK + 1, 10**40, "9" * 6000, None, True, [3], {}, float("nan"), "x"])
def test_what_cannot_be_a_rank_is_none(value: object) -> None:
    assert one_rank(value) is None and (one_rank(0), one_rank("12"), one_rank(LARGEST_RANK)) == (0, 12, LARGEST_RANK)
