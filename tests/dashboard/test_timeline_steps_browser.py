"""Picking and folding a step in a real Chromium: by number, slider, keys and link, on the server and in the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.timeline.steps import one_step
from tests.dashboard.browsing import open_file, open_more, trouble, visit, wait_for

pytestmark = pytest.mark.browser

VIEW = "return [ddprof.timeline.lo, ddprof.timeline.hi]"
FOLDED = "return ddprof.timeline.root.dataset.folded === 'true'"
# The first painted column of each row of a rank, and the last: pixels that are not the ground's.
PAINTED = """
  const t = ddprof.timeline, pen = t.canvas.getContext("2d");
  return t.visibleRows().filter((r) => r.isRank && r.lane !== undefined).map((row) => {
    const y = Math.round((row.y + row.height / 2) * t.ratio), from = Math.round(ddprof.GUTTER * t.ratio) + 1;
    const line = pen.getImageData(from, y, t.canvas.width - from, 1).data;
    const ink = (i) => line[i + 3] > 0;
    let first = 0, last = line.length - 4;
    while (first < line.length && !ink(first)) first += 4;
    while (last > 0 && !ink(last)) last -= 4;
    return [t.ns(ddprof.GUTTER + first / 4 / t.ratio), t.ns(ddprof.GUTTER + last / 4 / t.ratio), row.rank];
  });"""


@pytest.fixture(scope="module")
def address(serve: Callable[..., str], straggler: OpenRun) -> str:
    """A server of one generated GPU run."""
    return serve([straggler])


def _spans(run: OpenRun, number: int) -> dict[int, tuple[float, float]]:
    return {rank: (lo * 1e3, hi * 1e3) for rank, lo, hi in one_step(run.timeline.steps, number)["ranks"]}


def _at_step(chromium: Any, number: int) -> list[float]:
    wait_for(chromium, f"return ddprof.timeline.root.dataset.step === '{number}'")
    found: list[float] = chromium.execute_script(VIEW)
    return found


def test_a_step_is_picked_by_number_slider_and_keys(chromium: Any, address: str, straggler: OpenRun) -> None:
    visit(chromium, address, "/timeline")
    box = chromium.find_element("css selector", ".tl-steps input[type=number]")
    box.send_keys("1\n")
    lo, hi = _at_step(chromium, 1)
    spans = _spans(straggler, 1)
    first, last = min(s[0] for s in spans.values()), max(s[1] for s in spans.values())
    assert lo <= first and last <= hi and hi - lo < 1.1 * (last - first)
    open_more(chromium)  # in a window of this width the slider has no room in the bar
    chromium.find_element("css selector", ".tl-steps input[type=range]").send_keys("\ue014")  # right
    assert _at_step(chromium, 2)[0] > lo
    canvas = chromium.find_element("css selector", ".tl-scroll canvas")
    chromium.execute_script("arguments[0].focus()", canvas)
    canvas.send_keys(",")
    assert _at_step(chromium, 1) == pytest.approx([lo, hi])
    assert chromium.find_element("css selector", ".tl-steps input[type=range]").get_attribute("value") == "1"
    box.clear()
    box.send_keys("999\n")
    _at_step(chromium, straggler.step_count - 1)
    assert trouble(chromium, address) == []


def test_folded_every_rank_begins_at_zero_and_ends_with_its_step(
    chromium: Any, address: str, straggler: OpenRun
) -> None:
    visit(chromium, address, "/timeline?step=1&fold=1")
    wait_for(chromium, FOLDED)
    chromium.execute_script("const t = ddprof.timeline; t.open.clear(); t.layout()")
    tiles = chromium.execute_script("return Number(ddprof.timeline.root.dataset.tiles)")
    chromium.execute_script("ddprof.timeline.refetch()")
    wait_for(chromium, f"return Number(ddprof.timeline.root.dataset.tiles) > {tiles}")
    chromium.execute_script("const t = ddprof.timeline; t.showPath = false; t.spans = []; t.painter.paint()")
    lo, hi = chromium.execute_script(VIEW)
    pixel = (hi - lo) / chromium.execute_script("return ddprof.timeline.width - ddprof.GUTTER")
    painted = chromium.execute_script(PAINTED)
    spans = _spans(straggler, 1)
    assert {rank for _, _, rank in painted} == set(spans)
    for first, last, rank in painted:
        assert first == pytest.approx(0, abs=3 * pixel), rank
        assert last == pytest.approx(spans[rank][1] - spans[rank][0], abs=3 * pixel), rank
    assert "start of it" in chromium.find_element("id", "timeline-say").text


def test_a_copied_link_shows_the_folded_step(chromium: Any, address: str) -> None:
    visit(chromium, address, "/timeline")
    chromium.find_element("css selector", ".tl-steps input[type=checkbox]").click()
    wait_for(chromium, FOLDED)
    chromium.execute_script("ddprof.timeline.stepBy(1)")
    _at_step(chromium, 1)
    chromium.execute_script("ddprof.timeline.zoom(0.5)")
    wait_for(chromium, "return location.search.includes('fold=1') && location.search.includes('step=1')")
    seen = chromium.execute_script("return [ddprof.timeline.lo, ddprof.timeline.hi].map(Math.round)")
    wait_for(chromium, f"return location.search.includes('to=' + ({seen[1]} / 1e3).toFixed(1))")
    visit(chromium, address, "/timeline" + chromium.execute_script("return location.search"))
    wait_for(chromium, FOLDED)
    assert _at_step(chromium, 1) == pytest.approx(seen, abs=200)


def test_a_range_of_a_folded_step_has_its_numbers(chromium: Any, address: str, straggler: OpenRun) -> None:
    visit(chromium, address, "/timeline?step=1&fold=1")
    wait_for(chromium, FOLDED)
    chromium.execute_script("ddprof.timeline.range = [0, 1e12]; ddprof.timeline.statistics()")
    wait_for(chromium, "return document.querySelector('.tl-panel h3')")
    asked = chromium.execute_script(
        "return performance.getEntriesByType('resource').filter((e) => e.name.includes('statistics')).at(-1).name"
    )
    assert "step=1" in asked and "lo=0" in asked


def test_what_leads_elsewhere_unfolds(chromium: Any, address: str) -> None:
    visit(chromium, address, "/timeline?step=1&fold=1")
    wait_for(chromium, FOLDED)
    chromium.execute_script("ddprof.timeline.jump(0)")
    assert chromium.execute_script("return ddprof.timeline.isFolded") is False
    assert not chromium.find_element("css selector", ".tl-steps input[type=checkbox]").is_selected()
    assert trouble(chromium, address) == []


def test_the_file_folds_without_a_server(chromium: Any, tmp_path: Path, straggler: OpenRun) -> None:
    address = open_file(chromium, tmp_path / "x.html", render(straggler), "#timeline")
    chromium.execute_script("ddprof.timeline.takeStep(1).then(() => ddprof.timeline.setFold(true))")
    wait_for(chromium, FOLDED)
    spans = _spans(straggler, 1)
    longest = max(hi - lo for lo, hi in spans.values())
    assert chromium.execute_script("return ddprof.timeline.bounds[1]") == pytest.approx(longest * 1.02, rel=1e-3)
    chromium.execute_script("ddprof.timeline.range = [-1e9, 1e12]; ddprof.timeline.statistics()")
    wait_for(chromium, "return document.querySelector('.tl-panel h3')")
    assert trouble(chromium, address) == []
