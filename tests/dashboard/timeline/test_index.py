"""The timeline's index is exact: prefix sums equal slice-by-slice arithmetic, whatever the window."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddprof.dashboard.timeline.host_lanes import disjoint_rows
from ddprof.dashboard.timeline.index import SliceIndex, Slices

CATEGORIES = 3
Cut = tuple[int, int, int]  # length, gap after it, category of a slice
cuts_of_lane = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 30), st.integers(0, CATEGORIES - 1)), max_size=30)
lanes_of_cuts = st.lists(cuts_of_lane, min_size=1, max_size=4)


def _lane(cuts: list[Cut], origin: int) -> Slices:
    lengths, gaps, category = np.array(cuts, np.int64).reshape(-1, 3).T
    end = origin + np.cumsum(lengths + gaps) - gaps
    number = np.arange(len(cuts))
    return Slices(end - lengths, end, category, number, number)


@given(lanes_of_cuts, st.integers(-40, 40), st.integers(-100, 2000), st.integers(0, 2000))
def test_busy_time_of_any_window_is_exact(cuts: list[list[Cut]], origin: int, lo: int, width: int) -> None:
    lanes = [_lane(c, origin) for c in cuts]
    index = SliceIndex(lanes, CATEGORIES)
    groups = index.groups_of(np.arange(len(lanes)))
    busy = index.busy(groups, np.array([lo, lo + width]))[:, 0]
    for group, busy_ns in zip(groups.tolist(), busy.tolist(), strict=True):
        lane = lanes[group // CATEGORIES]
        inside = np.minimum(lane.end_ns, lo + width) - np.maximum(lane.start_ns, lo)
        assert busy_ns == np.maximum(inside, 0)[lane.category == group % CATEGORIES].sum()


@given(lanes_of_cuts, st.integers(-100, 2000), st.integers(1, 2000))
def test_rows_of_a_window_are_the_slices_that_overlap_it(cuts: list[list[Cut]], lo: int, width: int) -> None:
    lanes = [_lane(c, 0) for c in cuts]
    index = SliceIndex(lanes, CATEGORIES)
    rows = index.rows(index.groups_of(np.arange(len(lanes))), lo, lo + width)
    told = sorted(zip(rows.lane.tolist(), rows.start_ns.tolist(), rows.dur_ns.tolist(), strict=True))
    wanted = sorted(
        (number, int(start), int(end - start))
        for number, lane in enumerate(lanes)
        for start, end in zip(lane.start_ns, lane.end_ns, strict=True)
        if start < lo + width and end > lo
    )
    if lo < index.hi_ns and lo + width > index.lo_ns:
        assert told == wanted


def test_a_row_leads_back_to_its_slice_no_slices_are_an_answer_and_outer_spans_lie_above() -> None:
    index = SliceIndex([_lane([(5, 1, 0), (7, 2, 1), (3, 0, 0)], 100)], CATEGORIES)
    rows = np.arange(len(index))
    columns = (index.start_ns(rows), index.dur_ns(rows), index.ref[rows])
    assert sorted(np.stack(columns, axis=1).tolist()) == [[100, 5, 0], [106, 7, 1], [115, 3, 2]]
    index = SliceIndex([_lane([], 0)], CATEGORIES)
    groups = index.groups_of(np.array([0]))
    assert len(index) == 0 and len(groups) == 0 and len(index.rows(groups, 0, 10).row) == 0
    start, end = np.array([0, 2, 5, 10]), np.array([9, 4, 8, 12])
    assert [row.tolist() for row in disjoint_rows(start, end)] == [[0, 3], [1, 2]]


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 40)), max_size=40))
def test_rows_hold_every_span_once_and_never_overlap(spans: list[tuple[int, int]]) -> None:
    start = np.array([s for s, _ in spans], np.int64)
    end = start + np.array([d for _, d in spans], np.int64)
    rows = disjoint_rows(start, end)
    assert sorted(np.concatenate([np.empty(0, np.int64), *rows]).tolist()) == list(range(len(spans)))
    for row in rows:
        assert np.all(start[row][1:] >= end[row][:-1])
