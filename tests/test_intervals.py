"""Set laws of interval arithmetic, checked against sets of integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddprof import intervals
from ddprof.intervals import Intervals

TOP = 60
PAIRS = st.lists(st.tuples(st.integers(0, TOP), st.integers(0, TOP)), max_size=12)


def made(pairs: list[tuple[int, int]]) -> Intervals:
    """The union of (start, end) pairs."""
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return intervals.union(table[:, 0], table[:, 1])


def instants(a: Intervals) -> set[int]:
    """The integers in an interval set."""
    return {i for lo, hi in zip(*a, strict=True) for i in range(int(lo), int(hi))}


@given(PAIRS)
def test_union_holds_every_instant_once_sorted_and_apart(pairs: list[tuple[int, int]]) -> None:
    a = made(pairs)
    assert instants(a) == {i for lo, hi in pairs for i in range(lo, hi)} and intervals.length(a) == len(instants(a))
    assert (a[1] > a[0]).all() and (a[0][1:] > a[1][:-1]).all()
    assert np.array_equal(a, intervals.union(*a))


@given(PAIRS, PAIRS)
def test_operations_are_those_of_sets(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    a, b = made(first), made(second)
    assert instants(intervals.intersect(a, b)) == instants(a) & instants(b)
    assert instants(intervals.subtract(a, b)) == instants(a) - instants(b)
    either = intervals.union(np.concatenate((a[0], b[0])), np.concatenate((a[1], b[1])))
    left = intervals.complement(either, 0, TOP)
    right = intervals.intersect(intervals.complement(a, 0, TOP), intervals.complement(b, 0, TOP))
    assert instants(left) == instants(right)
    start, end, of_a, of_b = intervals.intersect_rows(a, b)
    assert (start == np.maximum(a[0][of_a], b[0][of_b])).all() and (end == np.minimum(a[1][of_a], b[1][of_b])).all()


@given(PAIRS)
def test_an_instant_has_the_row_of_the_interval_that_holds_it(pairs: list[tuple[int, int]]) -> None:
    a, every = made(pairs), np.arange(TOP + 1)
    rows = intervals.row_at(a, every)
    assert set(every[rows >= 0].tolist()) == instants(a)
    assert all(a[0][row] <= at < a[1][row] for at, row in zip(every, rows, strict=True) if row >= 0)


@given(PAIRS, st.integers(0, TOP), st.integers(0, TOP))
def test_clip_and_complement_fill_the_window(pairs: list[tuple[int, int]], one: int, other: int) -> None:
    lo, hi = sorted((one, other))
    a = made(pairs)
    inside, rest = intervals.clip(a, lo, hi), intervals.complement(a, lo, hi)
    assert intervals.length(inside) + intervals.length(rest) == hi - lo


@given(PAIRS, st.lists(st.tuples(st.integers(-5, TOP + 5), st.integers(-5, TOP + 5)), max_size=8))
def test_overlap_is_the_length_in_each_window(pairs: list[tuple[int, int]], windows: list[tuple[int, int]]) -> None:
    a = made(pairs)
    ordered = np.array([sorted(w) for w in windows], np.int64).reshape(-1, 2)
    lengths = intervals.overlap(a, ordered[:, 0], ordered[:, 1]).tolist()
    assert lengths == [intervals.length(intervals.clip(a, int(lo), int(hi))) for lo, hi in ordered]


@given(PAIRS)
def test_each_instant_is_held_by_the_interval_that_ends_last(pairs: list[tuple[int, int]]) -> None:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    start, end, row = intervals.holders(table[:, 0], table[:, 1])
    held = {i: r for lo, hi, r in zip(start.tolist(), end.tolist(), row.tolist(), strict=True) for i in range(lo, hi)}
    around = {i: [hi for lo, hi in pairs if lo <= i < hi] for i in range(TOP)}
    assert sorted(held) == [i for i in range(TOP) if around[i]] and int((end - start).sum()) == len(held)
    assert all(pairs[r][0] <= i and pairs[r][1] == max(around[i]) for i, r in held.items())


def test_calls_nest_and_the_bounds_of_inner_ones_lie_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    start, end = np.array([0, 10, 20, 60]), np.array([50, 40, 40, 80])
    assert intervals.outermost(start, end).tolist() == [True, False, False, True]
    end, parent, depth = intervals.nested(start, end)
    assert end.tolist() == [50, 40, 40, 80] and parent.tolist() == [-1, 0, 1, -1] and depth.tolist() == [1, 2, 3, 1]
    at, owner, is_start = intervals.bounds(np.zeros(4, np.int64), start, end)
    assert at.tolist() == [0, 10, 20, 40, 40, 50, 60, 80]
    assert owner.tolist() == [0, 1, 2, 2, 1, 0, 3, 3] and is_start.tolist() == [1, 1, 1, 0, 0, 0, 1, 0]
    monkeypatch.setattr(intervals, "_FREE_ROWS", 0)
    monkeypatch.setattr(intervals, "MOST_DEEP", 2)  # the innermost of four has no length, and its caller the time
    deep = intervals.nested(np.arange(4), 9 - np.arange(4))
    assert [column.tolist() for column in deep] == [[9, 8, 2, 3], [-1, 0, 1, 1], [1, 2, 3, 3]]
