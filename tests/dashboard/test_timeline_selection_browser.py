"""Selecting in the timeline: the rows that are dragged over, a table that is sorted and copied, by keyboard too."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import pytest

from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.timeline.selection import selection_statistics
from tests.dashboard.browsing import trouble, visit, wait_for

pytestmark = pytest.mark.browser

TABLES = "document.querySelectorAll('.tl-panel table').length === 2"
ROWS = "[...document.querySelector('.tl-panel table').tBodies[0].rows]"
CELLS = f"{ROWS}.map((r) => [...r.cells].map((c) => c.innerText))"


@pytest.fixture
def address(serve: Callable[..., str], straggler: OpenRun) -> str:
    """A server of one run."""
    return serve([straggler])


def drag(chromium: Any, first: str, last: str) -> None:
    """Drag from one row to another, named by conditions on `r`, over a quarter of the picture; wait for the tables."""
    from selenium.webdriver import ActionChains

    script = f"""
      const t = ddprof.timeline, place = (r) => r.y + r.height / 2 - t.height / 2;
      const rows = t.visibleRows();
      return [t.width / 4, place(rows.find((r) => {first})), place(rows.find((r) => {last}))]"""
    width, y1, y2 = chromium.execute_script(script)
    canvas = chromium.find_element("css selector", ".tl-scroll canvas")
    move = ActionChains(chromium).move_to_element_with_offset(canvas, 0, int(y1)).click_and_hold()
    move.move_by_offset(int(width), int(y2) - int(y1)).release().perform()
    wait_for(chromium, f"return {TABLES}")


def _known(chromium: Any, opened: OpenRun) -> dict[str, Any]:
    lanes, (lo, hi) = chromium.execute_script("const t = ddprof.timeline; return [[...t.area], t.range]")
    return selection_statistics(opened.timeline, sorted(lanes), round(lo), round(hi))


def _us(ns: float | None) -> str:
    return "–" if ns is None else f"{ns / 1e3:,.3f}"


def test_a_drag_over_a_closed_rank_is_all_of_its_lanes(chromium: Any, address: str, straggler: OpenRun) -> None:
    visit(chromium, address, "/timeline")
    chromium.execute_script("const t = ddprof.timeline; t.open = new Set(); t.layout(); t.refetch()")
    drag(chromium, "r.rank === 1", "r.rank === 2")
    chosen = chromium.execute_script("return [...ddprof.timeline.area]")
    assert {straggler.timeline.lanes[n].rank for n in chosen} == {1, 2}
    assert len(chosen) == sum(lane.rank in (1, 2) for lane in straggler.timeline.lanes)
    known = _known(chromium, straggler)
    shown = chromium.execute_script(f"return {CELLS}")
    assert [row[0] for row in shown] == [row["name"] for row in known["names"]]
    assert [row[4:8] for row in shown] == [
        [_us(row[column]) for column in ("total_ns", "mean_ns", "min_ns", "max_ns")] for row in known["names"]
    ]
    assert trouble(chromium, address) == []


def test_a_drag_over_one_lane_is_this_lane_and_its_table_is_sorted_and_copied(
    chromium: Any, address: str, straggler: OpenRun
) -> None:
    visit(chromium, address, "/timeline")
    chromium.execute_script("const t = ddprof.timeline; t.open = new Set([0]); t.layout(); t.refetch()")
    drag(chromium, "r.label.includes('compute')", "r.label.includes('compute')")
    lane = next(n for n, known in enumerate(straggler.timeline.lanes) if "compute" in known.label)
    assert chromium.execute_script("return [...ddprof.timeline.area]") == [lane]
    heads = chromium.find_elements("css selector", ".tl-panel table:first-of-type th button")
    next(head for head in heads if head.text.startswith("calls")).click()
    calls = [int(row[3].replace(",", "").replace("–", "-1")) for row in chromium.execute_script(f"return {CELLS}")]
    assert calls == sorted(calls, reverse=True)
    chromium.execute_script(
        "Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (t) => { window.copied = t; } } })"
    )
    chromium.find_element("xpath", "//*[@class='tl-panel']//button[text()='Copy CSV']").click()
    head, *rows = csv.reader(io.StringIO(wait_for(chromium, "return window.copied")))
    assert head[4] == "total (µs)"
    told = {(row[0], row[1]): (float(row[4]) if row[4] else None) for row in rows}
    known = _known(chromium, straggler)
    assert told == {(row["name"], row["what"]): pytest.approx(row["total_ns"] / 1e3) for row in known["names"]}


def test_keys_select_what_is_in_view(chromium: Any, address: str, straggler: OpenRun) -> None:
    visit(chromium, address, "/timeline")
    canvas = chromium.find_element("css selector", ".tl-scroll canvas")
    chromium.execute_script("arguments[0].focus()", canvas)
    canvas.send_keys("r")
    wait_for(chromium, f"return {TABLES}")
    assert chromium.execute_script("return ddprof.timeline.area.size") == len(straggler.timeline.lanes)
    canvas.send_keys("\ue015", "\ue015", "r")  # the second lane below
    wait_for(chromium, "return ddprof.timeline.area.size < ddprof.timeline.info.lanes.length")
    canvas.send_keys("\ue00c")
    assert chromium.execute_script("return [ddprof.timeline.range, ddprof.timeline.area]") == [None, None]


def test_an_idle_place_has_its_cause(chromium: Any, address: str, straggler: OpenRun) -> None:
    visit(chromium, address, "/timeline")
    script = """
      const t = ddprof.timeline, lane = t.info.lanes.find((l) => l.label.includes('communication'));
      t.open.add(lane.rank); t.layout();
      t.choose(t.info.lo_ns, t.info.lo_ns + 1000, t.rows.filter((r) => r.lane === lane.id));
      t.statistics();"""
    chromium.execute_script(script)
    wait_for(chromium, f"return {TABLES}")
    assert chromium.find_element("css selector", ".tl-panel p").text == _known(chromium, straggler)["idle"]
    assert [row[:2] for row in chromium.execute_script(f"return {CELLS}")] == [["nothing", "idle"]]
