"""A selection's numbers are those of the events: worked out here one event at a time."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby

import numpy as np
import pytest

from ddprof.causes import CAUSES
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.timeline import selection
from ddprof.dashboard.timeline.selection import selection_statistics


def _window(opened: OpenRun) -> tuple[int, int]:
    """A third of the run, whose ends lie inside of slices."""
    index = opened.index
    return index.lo_ns + (index.hi_ns - index.lo_ns) // 3, index.lo_ns + 2 * (index.hi_ns - index.lo_ns) // 3


def _lanes(opened: OpenRun, kind: str) -> list[int]:
    return [n for n, lane in enumerate(opened.timeline.lanes) if lane.kind == kind]


def test_the_table_of_streams_is_arithmetic_on_the_device_operations(straggler: OpenRun) -> None:
    lo, hi = _window(straggler)
    job, timeline = straggler.job, straggler.timeline
    expected: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for position, facts in enumerate(job.ranks):
        shift = job.shift_ns(position)
        ops = facts.device_ops
        compute = ops["comm"] < 0
        for name, start, end in zip(
            ops["name"][compute], ops["start_ns"][compute] - shift, ops["end_ns"][compute] - shift, strict=True
        ):
            if start < hi and end > lo:
                inside = int(min(end, hi) - max(start, lo))
                expected[facts.strings[name]].append((inside, bool(start < lo or end > hi)))
    lanes = _lanes(straggler, "stream")
    found = selection_statistics(timeline, lanes, lo, hi)
    rows = {row["name"]: row for row in found["names"] if row["name"] in expected}
    assert set(rows) == set(expected) and len(rows) > 2
    for name, parts in expected.items():
        lengths, row = [ns for ns, _ in parts], rows[name]
        assert (row["calls"], row["total_ns"], row["cut"]) == (len(parts), sum(lengths), sum(cut for _, cut in parts))
        assert (row["min_ns"], row["max_ns"]) == (min(lengths), max(lengths))
        assert row["mean_ns"] == pytest.approx(sum(lengths) / len(parts))
        assert row["share"] == pytest.approx(sum(lengths) / (len(lanes) * (hi - lo)))
    assert any(row["cut"] for row in rows.values())
    totals = [row["total_ns"] for row in found["names"][:-1]]
    assert totals == sorted(totals, reverse=True)


def test_kernels_come_before_what_they_are_called_from(straggler: OpenRun) -> None:
    found = selection_statistics(straggler.timeline, range(len(straggler.timeline.lanes)), *_window(straggler))
    kinds = [row["kind"] for row in found["names"] if row["calls"]]
    assert kinds[0] == "device" and kinds[-1] == "steps"
    assert len(list(groupby(kinds))) == len(set(kinds))


def test_shares_of_a_kind_add_up_with_what_is_idle(straggler: OpenRun) -> None:
    lo, hi = _window(straggler)
    every = list(range(len(straggler.timeline.lanes)))
    found = selection_statistics(straggler.timeline, every, lo, hi)
    by_kind: dict[str, float] = defaultdict(float)
    for row in found["names"]:
        by_kind[row["kind"]] += row["share"]
    assert len(by_kind) > 2 and all(share == pytest.approx(1) for share in by_kind.values())
    assert sum(row["share"] for row in found["causes"]) == pytest.approx(1)


def test_causes_are_those_of_the_ledger(straggler: OpenRun) -> None:
    job, timeline = straggler.job, straggler.timeline
    steps = job.ranks[1].steps
    shift = job.shift_ns(1)
    lo, hi = int(steps["start_ns"][0]) - shift, int(steps["end_ns"][-1]) - shift
    lane = next(n for n in _lanes(straggler, "stream") if timeline.lanes[n].position == 1)
    found = {row["cause"]: row["total_ns"] for row in selection_statistics(timeline, [lane], lo, hi)["causes"]}
    booked: dict[str, int] = defaultdict(int)
    for row in job.ledger.rows():
        if row["rank"] == 1:
            booked[list(CAUSES.values())[row["cause"]].label] += row["dur_ns"]
    assert found == {cause: ns for cause, ns in booked.items() if ns}


def test_an_idle_selection_says_so_and_why(straggler: OpenRun) -> None:
    timeline, index = straggler.timeline, straggler.index
    for lane in _lanes(straggler, "stream"):
        rows = index.rows(index.groups_of(np.array([lane])), index.lo_ns, index.hi_ns)
        ends, starts = np.sort(rows.start_ns + rows.dur_ns)[:-1], np.sort(rows.start_ns)[1:]
        gap = int((starts - ends).argmax())
        found = selection_statistics(timeline, [lane], int(ends[gap]), int(starts[gap]))
        assert [(row["name"], row["share"]) for row in found["names"]] == [("nothing", 1.0)]
        assert sum(row["total_ns"] for row in found["causes"]) == starts[gap] - ends[gap]
        assert found["idle"].startswith("Nothing runs on the selected lanes. Meanwhile, time of rank")
        assert found["causes"][0]["cause"] in found["idle"]
    before = selection_statistics(timeline, [0], index.lo_ns - 5_000, index.lo_ns - 1_000)
    assert before["causes"] == [{"cause": "outside of the steps", "total_ns": 4_000, "share": 1.0}]


def test_the_lane_of_causes_alone_has_their_rows(straggler: OpenRun) -> None:
    lo, hi = _window(straggler)
    found = selection_statistics(straggler.timeline, _lanes(straggler, "causes")[:1], lo, hi)
    told = {row["name"]: row["total_ns"] for row in found["names"] if row["calls"]}
    assert told == {row["cause"]: row["total_ns"] for row in found["causes"]}


def test_names_beyond_the_bound_are_one_row(straggler: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    lo, hi = _window(straggler)
    lanes = _lanes(straggler, "stream")
    whole = selection_statistics(straggler.timeline, lanes, lo, hi)["names"]
    monkeypatch.setattr(selection, "MAX_NAMES", 2)
    some = selection_statistics(straggler.timeline, lanes, lo, hi)["names"]
    assert some[:2] == whole[:2] and some[2]["name"].endswith("other names")
    for column in ("calls", "total_ns", "cut"):
        assert sum(row[column] for row in some) == sum(row[column] for row in whole)
