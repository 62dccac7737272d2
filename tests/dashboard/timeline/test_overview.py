"""The map above the lanes: exact in its bins, its box follows the view and moves it, by mouse and by keys."""

import numpy as np
import pytest

from ddprof.dashboard.numbers import parse_numbers
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.timeline.overview import BINS, overview
from tests.dashboard.browsing import END, HOME, LEFT, PAGE_UP, PIXELS, RIGHT, Page

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
            assert np.allclose(np.array(shares), mine / (np.diff(edges) * len(lanes)) * 255, atol=1.01) and any(shares)
            assert all(np.array(shares)[mine > 10] > 0)  # whatever is there is seen
    assert [number for number, _ in overview(timeline)["steps"]] == [*range(len(straggler.job.ranks[0].steps))]


@pytest.fixture
def whole(timeline: Page) -> Page:
    """The timeline of a run whose map is drawn."""
    timeline.wait("return ddprof.timeline.root.dataset.map")
    return timeline


def test_the_box_follows_the_view_which_keys_move_and_stretch(whole: Page) -> None:
    assert whole.js(_BOX) == pytest.approx((0, 1), abs=0.01)
    whole.js(QUARTER)
    whole.wait(PLACED)
    assert whole.js(_BOX) == pytest.approx((0.25, 0.5), abs=0.01)
    assert whole.js("return ddprof.timeline.mapBox.getAttribute('aria-valuetext')").startswith("from ")
    lo, hi = whole.view
    span, (first, last) = hi - lo, whole.js("return ddprof.timeline.runBounds")
    box, (start, end) = whole.css(".tl-map-box"), whole.every(".tl-map-end")
    box.send_keys(RIGHT)
    assert whole.view == pytest.approx([lo + 0.2 * span, hi + 0.2 * span])
    box.send_keys(HOME)
    assert whole.view == pytest.approx([first, first + span], abs=2)
    box.send_keys(END, PAGE_UP)
    assert whole.view == pytest.approx([last - 2 * span, last - span], abs=2)
    end.send_keys(END)
    start.send_keys(LEFT)
    assert whole.view == pytest.approx([last - 2.2 * span, last], rel=0.001)


def test_dragging_moves_and_stretches_the_view(whole: Page) -> None:
    whole.js(QUARTER)
    whole.wait(PLACED)
    lo, hi = whole.view
    width, first, last = whole.js("const t = ddprof.timeline; return [t.map.clientWidth, ...t.runBounds]")
    by = round(width / 10)
    way_ns = by / width * (last - first)
    whole.hands.drag_and_drop_by_offset(whole.css(".tl-map-box"), by, 0).perform()
    left, right = whole.view
    assert [left, right] == pytest.approx([lo + way_ns, hi + way_ns], rel=0.02)
    whole.hands.drag_and_drop_by_offset(whole.every(".tl-map-end")[1], by, 0).perform()
    assert whole.view == pytest.approx([left, right + way_ns], rel=0.02)
    whole.hands.move_to_element_with_offset(whole.css(".tl-map canvas"), 40 - round(width / 2), 0).click().perform()
    assert whole.view[0] == pytest.approx(first, abs=(last - first) / 100)


def test_hits_and_findings_are_on_the_map(whole: Page, straggler: OpenRun) -> None:
    line = f"""{PIXELS}
      const t = ddprof.timeline, y = arguments[0] < 0 ? t.mapCanvas.height - 3 : 2;
      return pixels(t.mapCanvas, [0, y * t.ratio], [t.painter.ink[arguments[1]]], 4)"""
    assert whole.wait(line, -1, "critical") and whole.wait(line, 1, "quiet") and whole.js(line, 1, "accent") == 0
    whole.js("ddprof.timeline.box.value = 'nccl'; ddprof.timeline.find()")
    assert whole.wait(line, 1, "accent")


def test_the_file_has_the_map(file_timeline: Page) -> None:
    assert file_timeline.wait("return document.getElementById('timeline-root').dataset.map") == str(BINS)
