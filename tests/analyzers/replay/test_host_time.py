"""Scaled parts of a host's time: what two scalings leave is their product, everywhere."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddprof import intervals
from ddprof.analyzers.replay.host_time import Scaled, by_level, on_top

END = 60
SPANS = st.lists(st.tuples(st.integers(0, END), st.integers(0, END)), max_size=4)
PARTS = st.lists(st.tuples(SPANS, st.sampled_from((0.0, 0.5, 2.0))), max_size=3)


def scaled(parts: list[tuple[list[tuple[int, int]], float]]) -> Scaled:
    return tuple(
        (intervals.union(np.array([a for a, _ in spans], np.int64), np.array([b for _, b in spans], np.int64)), share)
        for spans, share in parts
    )


def share_at(parts: Scaled, at: int) -> float:
    return math.prod(share ** int(((start <= at) & (at < end)).sum()) for (start, end), share in parts)


@given(PARTS, PARTS)
def test_one_on_top_of_the_other_is_their_product(first: list, second: list) -> None:
    a, b = scaled(first), scaled(second)
    both = on_top(a, b)
    for at in range(END):
        # Shares are kept to four digits after each factor; the sixth may double what the fifth lost.
        assert share_at(both, at) == pytest.approx(share_at(a, at) * share_at(b, at), abs=2e-4)
    covered = [spans for spans, _ in both]
    total = sum(intervals.length(spans) for spans in covered)
    merged = intervals.union(*(np.concatenate([spans[side] for spans in covered] or [[]]) for side in (0, 1)))
    assert total == intervals.length(merged)  # disjoint


def test_pieces_of_about_one_factor_are_kept_together() -> None:
    spans = np.array([0, 10, 20, 30]), np.array([5, 15, 25, 35])
    (((start, _), factor),) = by_level(spans, np.array([1.0, 1.5, 1.501, 1.004]))
    assert start.tolist() == [10, 20] and factor == 1.5
