"""The map above the lanes: exact in its bins, its box follows the view and moves it, by mouse and by keys."""

import numpy as np
import pytest

from ddprof.dashboard.numbers import parse_numbers
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.timeline.overview import BINS, overview
from tests.dashboard.browsing import Page

LEFT, RIGHT, HOME, END, PAGE_UP = "\ue012", "\ue014", "\ue011", "\ue010", "\ue00e"
VIEW = "return [ddprof.timeline.lo, ddprof.timeline.hi]"
QUARTER = "const t = ddprof.timeline, [a, b] = t.runBounds; t.show(a + (b - a) / 4, a + (b - a) / 2)"
PLACED = "return parseFloat(ddprof.timeline.mapBox.style.left) > 0"
_BOX = """
  const s = ddprof.timeline.mapBox.style, w = ddprof.timeline.map.clientWidth;
  return [parseFloat(s.left) / w, (parseFloat(s.left) + parseFloat(s.width)) / w]"""


def test_bins_hold_the_busy_share_of_all_ranks(straggler: OpenRun) -> None:
    timeline, index = straggler.timeline, straggler.index
    edges = np.linspace(index.lo_ns, index.hi_ns, BINS + 1)
    for text in ("", "0,2"):
        ranks = parse_numbers(text)
        lanes = [n for n, of in enumerate(timeline.lanes) if of.kind == "causes" and (not ranks or of.rank in ranks)]
        groups = index.groups_of(np.array(lanes))
        busy = index.busy(groups, edges.astype(np.int64))
        for code, shares in overview(timeline, ranks)["shares"].items():
            mine = busy[groups % index.categories == code].sum(axis=0)
            exact = mine / (np.diff(edges) * len(lanes)) * 255
            assert np.allclose(np.array(shares), exact, atol=1.01) and any(shares)
            assert all(np.array(shares)[mine > 10] > 0)  # whatever is there is seen
    steps = straggler.job.ranks[0].steps
    assert [number for number, _ in overview(timeline)["steps"]] == list(range(len(steps)))


@pytest.fixture
def whole(page: Page) -> Page:
    """The timeline of a run whose map is drawn."""
    page.visit("/timeline")
    page.wait("return ddprof.timeline.root.dataset.map")
    return page


def test_the_box_follows_the_view_which_keys_move_and_stretch(whole: Page) -> None:
    assert whole.js(_BOX) == pytest.approx((0, 1), abs=0.01)
    whole.js(QUARTER)
    whole.wait(PLACED)
    assert whole.js(_BOX) == pytest.approx((0.25, 0.5), abs=0.01)
    assert whole.js("return ddprof.timeline.mapBox.getAttribute('aria-valuetext')").startswith("from ")
    lo, hi = whole.js(VIEW)
    box = whole.css(".tl-map-box")
    start, end = whole.every(".tl-map-end")
    box.send_keys(RIGHT)
    assert whole.js(VIEW) == pytest.approx([lo + 0.2 * (hi - lo), hi + 0.2 * (hi - lo)])
    box.send_keys(HOME)
    first, last = whole.js("return ddprof.timeline.runBounds")
    assert whole.js(VIEW) == pytest.approx([first, first + hi - lo], abs=2)
    box.send_keys(END, PAGE_UP)
    assert whole.js(VIEW) == pytest.approx([last - 2 * (hi - lo), last - (hi - lo)], abs=2)
    end.send_keys(END)
    start.send_keys(LEFT)
    assert whole.js(VIEW) == pytest.approx([last - 2.2 * (hi - lo), last], rel=0.001) and whole.trouble() == []


def test_dragging_moves_and_stretches_the_view(whole: Page) -> None:
    whole.js(QUARTER)
    whole.wait(PLACED)
    lo, hi = whole.js(VIEW)
    width = whole.js("return ddprof.timeline.map.clientWidth")
    first, last = whole.js("return ddprof.timeline.runBounds")
    by = round(width / 10)
    whole.hands.drag_and_drop_by_offset(whole.css(".tl-map-box"), by, 0).perform()
    moved = whole.js(VIEW)
    assert moved == pytest.approx([lo + by / width * (last - first), hi + by / width * (last - first)], rel=0.02)
    _, end = whole.every(".tl-map-end")
    whole.hands.drag_and_drop_by_offset(end, by, 0).perform()
    assert whole.js(VIEW) == pytest.approx([moved[0], moved[1] + by / width * (last - first)], rel=0.02)
    canvas = whole.css(".tl-map canvas")
    whole.hands.move_to_element_with_offset(canvas, -round(width / 2) + 40, 0).click().perform()
    assert whole.js(VIEW)[0] == pytest.approx(first, abs=(last - first) / 100)


def test_hits_and_findings_are_on_the_map(whole: Page, straggler: OpenRun) -> None:
    line = """
      const c = ddprof.timeline.mapCanvas, t = ddprof.timeline, y = arguments[0] < 0 ? c.height - 3 : 2;
      const want = t.painter.ink[arguments[1]].match(/[0-9a-f]{2}/gi).map((h) => parseInt(h, 16));
      const row = c.getContext('2d').getImageData(0, y * t.ratio, c.width, 1).data;
      let found = 0;
      for (let i = 0; i < row.length; i += 4) found += want.every((v, k) => Math.abs(row[i + k] - v) < 4);
      return found"""
    whole.wait(f"return (function () {{{line}}})(-1, 'critical') > 0")
    whole.wait(f"return (function () {{{line}}})(1, 'quiet') > 0")
    assert whole.js(line, 1, "accent") == 0
    whole.js("ddprof.timeline.box.value = 'nccl'; ddprof.timeline.find()")
    whole.wait(f"return (function () {{{line}}})(1, 'accent') > 0")


def test_the_file_has_the_map(file_page: Page) -> None:
    page = file_page.open("#timeline")
    assert page.wait("return document.getElementById('timeline-root').dataset.map") == str(BINS)
    assert page.trouble() == []
