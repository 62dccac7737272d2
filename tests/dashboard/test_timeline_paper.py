"""The dashboard's timeline on paper: every row of the shown range, in strips that a page holds."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ddprof.dashboard.runs.open_run import OpenRun
from tests.dashboard.browsing import trouble, visit, wait_for

pytestmark = pytest.mark.browser

PRINT = "window.dispatchEvent(new Event('beforeprint'))"
SHEETS = "[...document.querySelectorAll('.tl-paper canvas')]"
# Share of the rows with slices that have one of their colours: the strips' axes are 26 px, their scale is 2.
PAINTED = f"""
  const t = ddprof.timeline, fills = t.painter.fill.map((c) => c.match(/[0-9a-f]{{2}}/gi).map((h) => parseInt(h, 16)));
  const rows = t.rows.filter((r) => r.lane !== undefined), heights = {SHEETS}.map((c) => c.height);
  let seen = 0;
  for (const c of {SHEETS}) {{
    const pen = c.getContext('2d');
    for (let y = 0; y < c.height; y += 2) {{
      const line = pen.getImageData(380, y, c.width - 380, 1).data;
      let hits = 0;
      const is = (f, i) => f.every((v, k) => Math.abs(v - line[i + k]) < 4);
      for (let i = 0; i < line.length; i += 4) hits += fills.some((f) => is(f, i));
      seen += hits > 20;
    }}
  }}
  return [seen * 2, rows.length, heights];"""


@pytest.fixture
def small(chromium: Any) -> Iterator[Any]:
    """A window in which only some rows are in view."""
    chromium.set_window_size(1000, 420)
    yield chromium
    chromium.set_window_size(1280, 900)


def open_timeline(chromium: Any, address: str) -> None:
    """The timeline with the lanes of all ranks, most of them out of view."""
    visit(chromium, address, "/timeline")
    wait_for(chromium, "return ddprof.timeline.root.dataset.path !== undefined")
    chromium.execute_script("const t = ddprof.timeline; t.open = new Set(t.info.lanes.map((l) => l.rank)); t.layout()")
    assert chromium.execute_script("return ddprof.timeline.visibleRows().length < ddprof.timeline.rows.length / 2")


def test_all_rows_are_drawn(small: Any, serve: Callable[..., str], straggler: OpenRun) -> None:
    address = serve([straggler])
    open_timeline(small, address)
    small.execute_script(PRINT)
    tall = small.execute_script("return ddprof.timeline.tall")
    assert trouble(small, address) == []
    painted, rows, heights = small.execute_script(PAINTED)
    assert len(heights) > 1 and sum(heights) / 2 >= tall and max(heights) / 2 < 620
    assert painted > 0.5 * 2 * 13 * rows  # two pixels a unit; the least height of a row is 13
    assert small.find_element("css selector", ".tl-paper p").get_attribute("textContent") == ""
    small.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert small.execute_script(f"return {SHEETS}.length") == 0


def test_paper_is_light_and_shows_the_range(small: Any, serve: Callable[..., str], straggler: OpenRun) -> None:
    address = serve([straggler])
    open_timeline(small, address)
    small.execute_script("document.documentElement.dataset.theme = 'dark'; ddprof.timeline.zoom(0.3)")
    whole = small.execute_script(f"{PRINT}; const c = {SHEETS}[0]; return c.toDataURL()")
    ground = f"return [...{SHEETS}[0].getContext('2d').getImageData(2, 2, 1, 1).data]"
    assert small.execute_script(ground) == [255, 255, 255, 255]
    small.execute_script("ddprof.timeline.zoom(0.3)")
    assert small.execute_script(f"{PRINT}; return {SHEETS}[0].toDataURL()") != whole
    small.delete_all_cookies()


def test_what_is_cut_is_said(small: Any, serve: Callable[..., str], straggler: OpenRun) -> None:
    open_timeline(small, serve([straggler]))
    many = "const t = ddprof.timeline; t.rows = Array.from({ length: 500 }, () => t.rows[1]); return t.rows.length"
    assert small.execute_script(many) == 500
    small.execute_script(PRINT)
    said = small.find_element("css selector", ".tl-paper p").get_attribute("textContent")
    assert said.startswith("Printed are the first 400 of 500 rows")


def test_the_printed_page_holds_the_strips(small: Any, serve: Callable[..., str], straggler: OpenRun) -> None:
    open_timeline(small, serve([straggler]))
    pdf = base64.b64decode(small.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    pictures = len(re.findall(rb"/Subtype\s*/Image", pdf))
    assert pictures >= 2 and 2 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf)) <= 6
