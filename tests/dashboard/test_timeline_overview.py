"""The map above the lanes: exact in its bins, its box follows the view and moves it, by mouse and by keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddprof.dashboard.numbers import parse_numbers
from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.timeline.overview import BINS, overview
from tests.dashboard.browsing import open_file, trouble, visit, wait_for

LEFT, RIGHT, HOME, END, PAGE_UP = "\ue012", "\ue014", "\ue011", "\ue010", "\ue00e"
VIEW = "return [ddprof.timeline.lo, ddprof.timeline.hi]"


def test_bins_hold_the_busy_share_of_all_ranks(straggler: OpenRun) -> None:
    timeline, index = straggler.timeline, straggler.index
    edges = np.linspace(index.lo_ns, index.hi_ns, BINS + 1)
    for text in ("", "0,2"):
        ranks = parse_numbers(text)
        lanes = [
            n for n, lane in enumerate(timeline.lanes) if lane.kind == "causes" and (not ranks or lane.rank in ranks)
        ]
        groups = index.groups_of(np.array(lanes))
        busy = index.busy(groups, edges.astype(np.int64))
        found = overview(timeline, ranks)
        for code, shares in found["shares"].items():
            mine = busy[groups % index.categories == code].sum(axis=0)
            exact = mine / (np.diff(edges) * len(lanes)) * 255
            assert np.allclose(np.array(shares), exact, atol=1.01) and any(shares)
            assert all(np.array(shares)[mine > 10] > 0)  # whatever is there is seen
    steps = straggler.job.ranks[0].steps
    assert [number for number, _ in overview(timeline)["steps"]] == list(range(len(steps)))


@pytest.fixture
def address(serve: Callable[..., str], straggler: OpenRun) -> str:
    """A server of one run."""
    return serve([straggler])


@pytest.fixture
def whole(chromium: Any, address: str) -> Any:
    """The timeline of a run whose map is drawn."""
    visit(chromium, address, "/timeline")
    wait_for(chromium, "return ddprof.timeline.root.dataset.map")
    return chromium


def _box(chromium: Any) -> tuple[float, float]:
    """Left and right end of the box, as shares of the map."""
    lo, hi = chromium.execute_script(
        "const s = ddprof.timeline.mapBox.style, w = ddprof.timeline.map.clientWidth;"
        "return [parseFloat(s.left) / w, (parseFloat(s.left) + parseFloat(s.width)) / w]"
    )
    return lo, hi


@pytest.mark.browser
def test_the_box_follows_the_view(whole: Any, address: str) -> None:
    assert _box(whole) == pytest.approx((0, 1), abs=0.01)
    whole.execute_script("const t = ddprof.timeline, [a, b] = t.runBounds; t.show(a + (b - a) / 4, a + (b - a) / 2)")
    wait_for(whole, "return parseFloat(ddprof.timeline.mapBox.style.left) > 0")
    assert _box(whole) == pytest.approx((0.25, 0.5), abs=0.01)
    assert whole.execute_script("return ddprof.timeline.mapBox.getAttribute('aria-valuetext')").startswith("from ")
    assert trouble(whole, address) == []


@pytest.mark.browser
def test_dragging_moves_and_stretches_the_view(whole: Any) -> None:
    from selenium.webdriver import ActionChains

    whole.execute_script("const t = ddprof.timeline, [a, b] = t.runBounds; t.show(a + (b - a) / 4, a + (b - a) / 2)")
    wait_for(whole, "return parseFloat(ddprof.timeline.mapBox.style.left) > 0")
    lo, hi = whole.execute_script(VIEW)
    width = whole.execute_script("return ddprof.timeline.map.clientWidth")
    first, last = whole.execute_script("return ddprof.timeline.runBounds")
    by = round(width / 10)
    ActionChains(whole).drag_and_drop_by_offset(whole.find_element("css selector", ".tl-map-box"), by, 0).perform()
    moved = whole.execute_script(VIEW)
    assert moved == pytest.approx([lo + by / width * (last - first), hi + by / width * (last - first)], rel=0.02)
    _, end = whole.find_elements("css selector", ".tl-map-end")
    ActionChains(whole).drag_and_drop_by_offset(end, by, 0).perform()
    assert whole.execute_script(VIEW) == pytest.approx([moved[0], moved[1] + by / width * (last - first)], rel=0.02)
    canvas = whole.find_element("css selector", ".tl-map canvas")
    ActionChains(whole).move_to_element_with_offset(canvas, -round(width / 2) + 40, 0).click().perform()
    assert whole.execute_script(VIEW)[0] == pytest.approx(first, abs=(last - first) / 100)


@pytest.mark.browser
def test_keys_move_and_stretch_the_view(whole: Any) -> None:
    whole.execute_script("const t = ddprof.timeline, [a, b] = t.runBounds; t.show(a + (b - a) / 4, a + (b - a) / 2)")
    lo, hi = whole.execute_script(VIEW)
    box = whole.find_element("css selector", ".tl-map-box")
    start, end = whole.find_elements("css selector", ".tl-map-end")
    box.send_keys(RIGHT)
    assert whole.execute_script(VIEW) == pytest.approx([lo + 0.2 * (hi - lo), hi + 0.2 * (hi - lo)])
    box.send_keys(HOME)
    first, last = whole.execute_script("return ddprof.timeline.runBounds")
    assert whole.execute_script(VIEW) == pytest.approx([first, first + hi - lo], abs=2)
    box.send_keys(END, PAGE_UP)
    assert whole.execute_script(VIEW) == pytest.approx([last - 2 * (hi - lo), last - (hi - lo)], abs=2)
    end.send_keys(END)
    start.send_keys(LEFT)
    assert whole.execute_script(VIEW) == pytest.approx([last - 2.2 * (hi - lo), last], rel=0.001)


@pytest.mark.browser
def test_hits_and_findings_are_on_the_map(whole: Any, straggler: OpenRun) -> None:
    line = """
      const c = ddprof.timeline.mapCanvas, t = ddprof.timeline, y = arguments[0] < 0 ? c.height - 3 : 2;
      const want = t.painter.ink[arguments[1]].match(/[0-9a-f]{2}/gi).map((h) => parseInt(h, 16));
      const row = c.getContext('2d').getImageData(0, y * t.ratio, c.width, 1).data;
      let found = 0;
      for (let i = 0; i < row.length; i += 4) found += want.every((v, k) => Math.abs(row[i + k] - v) < 4);
      return found"""
    wait_for(whole, f"return (function () {{{line}}})(-1, 'critical') > 0")
    wait_for(whole, f"return (function () {{{line}}})(1, 'quiet') > 0")
    assert whole.execute_script(line, 1, "accent") == 0
    whole.execute_script("ddprof.timeline.box.value = 'nccl'; ddprof.timeline.find()")
    wait_for(whole, f"return (function () {{{line}}})(1, 'accent') > 0")


@pytest.mark.browser
def test_the_file_has_the_map(chromium: Any, tmp_path: Path, straggler: OpenRun) -> None:
    address = open_file(chromium, tmp_path / "x.html", render(straggler), "#timeline")
    assert wait_for(chromium, "return document.getElementById('timeline-root').dataset.map") == str(BINS)
    assert trouble(chromium, address) == []
