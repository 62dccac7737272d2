"""A selection's numbers are those of the events: worked out here one event at a time."""

import csv
import io
from collections import defaultdict
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from ddprof.causes import CAUSES
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.timeline import selection
from ddprof.dashboard.timeline.selection import selection_statistics
from tests.dashboard.browsing import DOWN, ESCAPE, Page
from tests.dashboard.made import lanes_of

TABLES = "document.querySelectorAll('.tl-panel table').length === 2"
BODY = "document.querySelector('.tl-panel table').tBodies[0]"
CELLS = f"[...{BODY}.rows].map((r) => [...r.cells].map((c) => c.innerText))"


def _window(opened: OpenRun) -> tuple[int, int]:
    """A third of the run, whose ends lie inside of slices."""
    index = opened.index
    return index.lo_ns + (index.hi_ns - index.lo_ns) // 3, index.lo_ns + 2 * (index.hi_ns - index.lo_ns) // 3


def test_the_table_of_streams_is_arithmetic_on_the_device_operations(straggler: OpenRun) -> None:
    lo, hi = _window(straggler)
    job, timeline = straggler.job, straggler.timeline
    expected: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for position, facts in enumerate(job.ranks):
        ops = facts.device_ops.take(facts.device_ops["comm"] < 0)
        times = (ops[column] - job.shift_ns(position) for column in ("start_ns", "end_ns"))
        for name, start, end in zip(ops["name"], *times, strict=True):
            if start < hi and end > lo:
                expected[facts.strings[name]].append((int(min(end, hi) - max(start, lo)), bool(start < lo or end > hi)))
    lanes = lanes_of(straggler, "stream")
    names = selection_statistics(timeline, lanes, lo, hi)["names"]
    rows = {row["name"]: row for row in names if row["name"] in expected}
    assert set(rows) == set(expected) and len(rows) > 2
    for name, parts in expected.items():
        lengths, row = [ns for ns, _ in parts], rows[name]
        assert (row["calls"], row["total_ns"], row["cut"]) == (len(parts), sum(lengths), sum(cut for _, cut in parts))
        assert (row["min_ns"], row["max_ns"]) == (min(lengths), max(lengths))
        assert row["mean_ns"] == pytest.approx(sum(lengths) / len(parts))
        assert row["share"] == pytest.approx(sum(lengths) / (len(lanes) * (hi - lo)))
    assert any(row["cut"] for row in rows.values())
    totals = [row["total_ns"] for row in names[:-1]]
    assert totals == sorted(totals, reverse=True)


def test_kernels_come_before_what_calls_them_and_shares_of_a_kind_add_up(straggler: OpenRun) -> None:
    told = selection_statistics(straggler.timeline, range(len(straggler.timeline.lanes)), *_window(straggler))
    kinds = [row["kind"] for row in told["names"] if row["calls"]]
    assert kinds[0] == "device" and kinds[-1] == "steps" and len(list(groupby(kinds))) == len(set(kinds)) > 2
    for kind in {row["kind"] for row in told["names"]}:
        assert sum(row["share"] for row in told["names"] if row["kind"] == kind) == pytest.approx(1)
    assert sum(row["share"] for row in told["causes"]) == pytest.approx(1)


def test_causes_are_those_of_the_ledger_and_the_rows_of_their_own_lane(straggler: OpenRun) -> None:
    job, timeline, steps = straggler.job, straggler.timeline, straggler.job.ranks[1].steps
    lo, hi = int(steps["start_ns"][0]) - job.shift_ns(1), int(steps["end_ns"][-1]) - job.shift_ns(1)
    lane = next(n for n in lanes_of(straggler, "stream") if timeline.lanes[n].position == 1)
    told = {row["cause"]: row["total_ns"] for row in selection_statistics(timeline, [lane], lo, hi)["causes"]}
    booked: dict[str, int] = defaultdict(int)
    for row in job.ledger.rows():
        if row["rank"] == 1:
            booked[list(CAUSES.values())[row["cause"]].label] += row["dur_ns"]
    assert told == {cause: ns for cause, ns in booked.items() if ns}
    own = selection_statistics(timeline, lanes_of(straggler, "causes")[:1], *_window(straggler))
    told = {row["name"]: row["total_ns"] for row in own["names"] if row["calls"]}
    assert told == {row["cause"]: row["total_ns"] for row in own["causes"]}


def test_an_idle_selection_says_so_and_why(straggler: OpenRun) -> None:
    timeline, index = straggler.timeline, straggler.index
    for lane in lanes_of(straggler, "stream"):
        rows = index.rows(index.groups_of(np.array([lane])), index.lo_ns, index.hi_ns)
        ends, starts = np.sort(rows.start_ns + rows.dur_ns)[:-1], np.sort(rows.start_ns)[1:]
        gap = int((starts - ends).argmax())
        told = selection_statistics(timeline, [lane], int(ends[gap]), int(starts[gap]))
        assert [(row["name"], row["share"]) for row in told["names"]] == [("nothing", 1.0)]
        assert sum(row["total_ns"] for row in told["causes"]) == starts[gap] - ends[gap]
        assert told["idle"].startswith("Nothing runs on the selected lanes. Meanwhile, time of rank")
        assert told["causes"][0]["cause"] in told["idle"]
    before = selection_statistics(timeline, [0], index.lo_ns - 5_000, index.lo_ns - 1_000)
    assert before["causes"] == [{"cause": "outside of the steps", "total_ns": 4_000, "share": 1.0}]


def test_names_beyond_the_bound_are_one_row(straggler: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = straggler.timeline, lanes_of(straggler, "stream"), *_window(straggler)
    whole = selection_statistics(*asked)["names"]
    monkeypatch.setattr(selection, "MAX_NAMES", 2)
    some = selection_statistics(*asked)["names"]
    assert some[:2] == whole[:2] and some[2]["name"].endswith("other names")
    for column in ("calls", "total_ns", "cut"):
        assert sum(row[column] for row in some) == sum(row[column] for row in whole)


def drag(page: Page, first: str, last: str) -> None:
    """Drag from one row to another, named by conditions on `r`, over a quarter of the picture; wait for the tables."""
    script = f"""
      const t = ddprof.timeline, place = (r) => r.y + r.height / 2 - t.height / 2;
      const rows = t.visibleRows();
      return [t.width / 4, place(rows.find((r) => {first})), place(rows.find((r) => {last}))]"""
    width, y1, y2 = page.js(script)
    move = page.hands.move_to_element_with_offset(page.canvas, 0, int(y1)).click_and_hold()
    move.move_by_offset(int(width), int(y2) - int(y1)).release().perform()
    page.wait(f"return {TABLES}")


def _known(page: Page, opened: OpenRun) -> dict[str, Any]:
    lanes, (lo, hi) = page.js("const t = ddprof.timeline; return [[...t.area], t.range]")
    return selection_statistics(opened.timeline, sorted(lanes), round(lo), round(hi))


def _us(ns: float | None) -> str:
    return "–" if ns is None else f"{ns / 1e3:,.3f}"


def test_a_drag_over_a_closed_rank_is_all_of_its_lanes(timeline: Page, straggler: OpenRun) -> None:
    timeline.js("const t = ddprof.timeline; t.open = new Set(); t.layout(); t.refetch()")
    drag(timeline, "r.rank === 1", "r.rank === 2")
    chosen = timeline.js("return [...ddprof.timeline.area]")
    assert {straggler.timeline.lanes[n].rank for n in chosen} == {1, 2}
    assert len(chosen) == sum(lane.rank in (1, 2) for lane in straggler.timeline.lanes)
    known, shown = _known(timeline, straggler), timeline.js(f"return {CELLS}")
    assert [row[0] for row in shown] == [row["name"] for row in known["names"]]
    columns = ("total_ns", "mean_ns", "min_ns", "max_ns")
    assert [row[4:8] for row in shown] == [[_us(row[column]) for column in columns] for row in known["names"]]


def test_a_drag_over_one_lane_is_that_lane_its_table_sorted_and_copied(timeline: Page, straggler: OpenRun) -> None:
    timeline.js("const t = ddprof.timeline; t.open = new Set([0]); t.layout(); t.refetch()")
    drag(timeline, "r.label.includes('compute')", "r.label.includes('compute')")
    lane = next(n for n, known in enumerate(straggler.timeline.lanes) if "compute" in known.label)
    assert timeline.js("return [...ddprof.timeline.area]") == [lane]
    heads = timeline.every(".tl-panel table:first-of-type th button")
    next(head for head in heads if head.text.startswith("calls")).click()
    calls = [int(row[3].replace(",", "").replace("–", "-1")) for row in timeline.js(f"return {CELLS}")]
    assert calls == sorted(calls, reverse=True)
    clipboard = "{ value: { writeText: async (t) => { window.copied = t; } } }"
    timeline.js(f"Object.defineProperty(navigator, 'clipboard', {clipboard})")
    timeline.browser.find_element("xpath", "//*[@class='tl-panel']//button[text()='Copy CSV']").click()
    head, *rows = csv.reader(io.StringIO(timeline.wait("return window.copied")))
    assert head[4] == "total (µs)"
    told = {(row[0], row[1]): (float(row[4]) if row[4] else None) for row in rows}
    known = _known(timeline, straggler)
    assert told == {(row["name"], row["what"]): pytest.approx(row["total_ns"] / 1e3) for row in known["names"]}


def test_keys_select_what_is_in_view_and_an_idle_place_has_its_cause(timeline: Page, straggler: OpenRun) -> None:
    timeline.keys("r")
    timeline.wait(f"return {TABLES}")
    assert timeline.js("return ddprof.timeline.area.size") == len(straggler.timeline.lanes)
    timeline.keys(DOWN, DOWN, "r")  # the second lane below
    timeline.wait("return ddprof.timeline.area.size < ddprof.timeline.info.lanes.length")
    timeline.keys(ESCAPE)
    assert timeline.js("return [ddprof.timeline.range, ddprof.timeline.area]") == [None, None]
    timeline.visit("/timeline")
    script = """
      const t = ddprof.timeline, lane = t.info.lanes.find((l) => l.label.includes('communication'));
      t.open.add(lane.rank); t.layout();
      t.choose(t.info.lo_ns, t.info.lo_ns + 1000, t.rows.filter((r) => r.lane === lane.id));
      t.statistics();"""
    timeline.js(script)
    timeline.wait(f"return {TABLES}")
    assert timeline.css(".tl-panel p").text == _known(timeline, straggler)["idle"]
    assert [row[:2] for row in timeline.js(f"return {CELLS}")] == [["nothing", "idle"]]
