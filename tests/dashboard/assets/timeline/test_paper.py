"""The dashboard's timeline on paper: every row of the shown range, in strips that a page holds."""

import re
from collections.abc import Iterator

import pytest

from tests.dashboard.browsing import Page

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
def small(page: Page) -> Iterator[Page]:
    """The timeline with the lanes of all ranks in a window in which only some rows are in view."""
    with page.window(1000, 420):
        page.visit("/timeline")
        page.wait("return ddprof.timeline.root.dataset.path !== undefined")
        page.js("const t = ddprof.timeline; t.open = new Set(t.info.lanes.map((l) => l.rank)); t.layout()")
        page.wait("return ddprof.timeline.visibleRows().length < ddprof.timeline.rows.length / 2")
        yield page


def test_all_rows_are_drawn_and_what_is_cut_is_said(small: Page) -> None:
    small.js(PRINT)
    assert small.trouble() == []  # Chromium itself warns of reading pixels
    painted, rows, heights = small.js(PAINTED)
    assert len(heights) > 1 and sum(heights) / 2 >= small.js("return ddprof.timeline.tall") and max(heights) / 2 < 620
    assert painted > 0.5 * 2 * 13 * rows  # two pixels a unit; the least height of a row is 13
    assert small.css(".tl-paper p").get_attribute("textContent") == ""
    small.js("window.dispatchEvent(new Event('afterprint'))")
    assert small.js(f"return {SHEETS}.length") == 0
    many = "const t = ddprof.timeline; t.rows = Array.from({ length: 500 }, () => t.rows[1]); return t.rows.length"
    assert small.js(many) == 500
    small.js(PRINT)
    cut = small.css(".tl-paper p").get_attribute("textContent")
    assert cut.startswith("Printed are the first 400 of 500 rows")


def test_paper_is_light_and_shows_the_range(small: Page) -> None:
    small.js("document.documentElement.dataset.theme = 'dark'; ddprof.timeline.zoom(0.3)")
    whole = small.js(f"{PRINT}; return {SHEETS}[0].toDataURL()")
    assert small.js(f"return [...{SHEETS}[0].getContext('2d').getImageData(2, 2, 1, 1).data]") == [255, 255, 255, 255]
    small.js("ddprof.timeline.zoom(0.3)")
    assert small.js(f"{PRINT}; return {SHEETS}[0].toDataURL()") != whole
    pdf = small.printed(preferCSSPageSize=True)
    assert len(re.findall(rb"/Subtype\s*/Image", pdf)) >= 2
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf)) <= 6
