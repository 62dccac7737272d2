"""Search in the timeline, also of the file: hits in closed ranks are marked, opened and stepped through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.timeline.search import search
from tests.dashboard.browsing import open_file, open_more, trouble, visit, wait_for

pytestmark = pytest.mark.browser

CLOSE = "const t = ddprof.timeline; t.open = new Set(); t.layout(); t.refetch()"
BOX = ".tl-bar input[type=search]"
SHIFT, ENTER = "\ue008", "\ue007"
# Pixels of a closed rank's line that have the colour of marks: of the first of some ranks that is in the picture.
MARKED = """
  const t = ddprof.timeline, row = t.visibleRows().find((r) => arguments[0].includes(r.rank) && r.isRank);
  if (!row) return 0;
  const want = t.painter.ink.text.match(/[0-9a-f]{2}/gi).map((h) => parseInt(h, 16));
  const line = t.canvas.getContext('2d').getImageData(0, (row.y + 2) * t.ratio, t.canvas.width, 1).data;
  let found = 0;
  for (let i = 0; i < line.length; i += 4) found += want.every((v, k) => Math.abs(line[i + k] - v) < 4);
  return found;"""


@pytest.fixture
def address(serve: Callable[..., str], straggler: OpenRun) -> str:
    """A server of one run."""
    return serve([straggler])


def seek(chromium: Any, text: str) -> None:
    """Type words into the search field and press Enter."""
    box = chromium.find_element("css selector", BOX)
    box.clear()
    box.send_keys(text + ENTER)


def _shown(chromium: Any, text: str) -> None:
    """Wait until the hits of a search are placed in the picture."""
    wait_for(chromium, f"return ddprof.timeline.root.dataset.placed === '{text}' && ddprof.timeline.found?.view")


def test_a_hit_in_a_closed_rank_is_opened_and_the_others_are_marked(
    chromium: Any, address: str, straggler: OpenRun
) -> None:
    visit(chromium, address, "/timeline")
    chromium.execute_script(CLOSE)
    wait_for(chromium, "return ddprof.timeline.visibleRows().every((r) => r.isRank)")
    seek(chromium, "nccl")
    _shown(chromium, "nccl")
    known = search(straggler.timeline, straggler.job, "nccl")
    first = known["hits"][0]
    assert chromium.execute_script("return ddprof.timeline.found.count") == known["count"]
    assert chromium.execute_script("return [...ddprof.timeline.open]") == [first["rank"]]
    assert chromium.execute_script("return ddprof.timeline.activeLane") == first["lane"]
    lo, hi = chromium.execute_script("return [ddprof.timeline.lo / 1e3, ddprof.timeline.hi / 1e3]")
    assert lo <= first["start_us"] and first["start_us"] + first["dur_us"] <= hi
    said = chromium.find_element("id", "timeline-say").text
    assert said.startswith(f"1 of {known['count']:,}: {first['name']}, rank {first['rank']}") and known["said"] in said
    chromium.execute_script("const t = ddprof.timeline; t.show(...t.bounds)")
    others = [rank for rank in known["ranks"] if rank != first["rank"]]
    wait_for(chromium, "return ddprof.timeline.found.view.hi >= ddprof.timeline.hi")
    wait_for(chromium, f"return (function () {{{MARKED}}})({others}) > 0")
    assert trouble(chromium, address) == []


def test_a_closed_group_is_marked_and_selected_as_all_of_its_ranks(chromium: Any, address: str) -> None:
    visit(chromium, address, "/timeline")
    script = """
      const t = ddprof.timeline, half = { key: "test:half", label: "half", ranks: [0, 1, 2] };
      const rest = { key: "test:rest", label: "rest", ranks: t.ranks().filter((rank) => rank > 2) };
      t.groups = () => [half, rest];
      t.isGroupClosed = () => true;
      t.open = new Set();
      t.layout();
      t.box.value = "nccl";
      t.showHit = () => {};
      return t.find().then(() => t.fetch()).then(() => t.lanesOf(t.rows[0]).length);"""
    lanes = chromium.execute_script(script)
    wait_for(chromium, "return ddprof.timeline.found.view?.ranks[2]")
    counted = "return ddprof.timeline.info.lanes.filter((lane) => lane.rank <= 2).length"
    assert chromium.execute_script(counted) == lanes
    drawn = """
      const t = ddprof.timeline, drawn = [], { hitMarks } = t.painter;
      t.painter.hitMarks = (spots, view, row) => drawn.push([row.label, spots.length > 0]);
      t.painter.hits(t.visibleRows());
      delete t.painter.hitMarks;
      return drawn;"""
    marks = chromium.execute_script(drawn)
    assert len(marks) == chromium.execute_script("return ddprof.timeline.ranks().length")
    assert all(has for _, has in marks) and len({label for label, _ in marks}) == 2


def test_next_and_previous_go_round(chromium: Any, address: str, straggler: OpenRun) -> None:
    visit(chromium, address, "/timeline")
    seek(chromium, "step 1")
    _shown(chromium, "step 1")
    count = len(straggler.job.ranks)
    at = "return ddprof.timeline.found.at"
    assert chromium.execute_script(at) == 0
    chromium.find_element("css selector", "button[title^='Previous hit']").click()
    wait_for(chromium, f"return ddprof.timeline.found.at === {count - 1}")
    canvas = chromium.find_element("css selector", ".tl-scroll canvas")
    canvas.send_keys("n")
    wait_for(chromium, "return ddprof.timeline.found.at === 0")
    canvas.send_keys("n")
    wait_for(chromium, "return ddprof.timeline.found.at === 1")
    chromium.execute_script("arguments[0].focus()", canvas)
    canvas.send_keys(SHIFT, "n")
    wait_for(chromium, "return ddprof.timeline.found.at === 0")
    chromium.find_element("css selector", BOX).send_keys(ENTER)
    wait_for(chromium, "return ddprof.timeline.found.at === 1")


def test_hits_beyond_the_first_page_are_fetched(
    chromium: Any, address: str, straggler: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddprof.dashboard.timeline.search.MAX_HITS", 3)
    visit(chromium, address, "/timeline")
    seek(chromium, "nccl")
    _shown(chromium, "nccl")
    for number in range(1, 5):
        chromium.execute_script("ddprof.timeline.stepHit(1)")
        wait_for(chromium, f"return ddprof.timeline.found.at === {number}")
    hit = search(straggler.timeline, straggler.job, "nccl", first=4)["hits"][0]
    assert chromium.execute_script("return ddprof.timeline.selected") == hit["row"]


def test_a_rank_is_opened_and_nothing_found_is_said(chromium: Any, address: str, straggler: OpenRun) -> None:
    visit(chromium, address, "/timeline")
    chromium.execute_script(CLOSE)
    seek(chromium, "rank 2")
    wait_for(chromium, "return ddprof.timeline.open.has(2)")
    seek(chromium, "no such kernel")
    words = search(straggler.timeline, straggler.job, "no such kernel")["said"]
    wait_for(chromium, f"return document.getElementById('timeline-say').textContent === {words!r}")
    assert chromium.find_element("css selector", ".tl-bar output").text == "none"
    assert trouble(chromium, address) == []


def test_ticking_operators_searches_them_too(chromium: Any, address: str) -> None:
    visit(chromium, address, "/timeline")
    seek(chromium, "aten::")
    _shown(chromium, "aten::")
    before = chromium.execute_script("return ddprof.timeline.found.count")
    label = next(e for e in open_more(chromium).find_elements("css selector", "label") if "operators" in e.text)
    label.find_element("css selector", "input").click()
    wait_for(chromium, f"return ddprof.timeline.found && ddprof.timeline.found.count > {before}")


def test_the_file_finds_the_same(chromium: Any, tmp_path: Path, straggler: OpenRun) -> None:
    address = open_file(chromium, tmp_path / "x.html", render(straggler), "#timeline")
    for text in ("nccl", "step 1", "nccl rank 1 step 1"):
        known = search(straggler.timeline, straggler.job, text)
        chromium.execute_script(f"ddprof.timeline.box.value = '{text}'; ddprof.timeline.find()")
        _shown(chromium, text)
        found = chromium.execute_script("return ddprof.timeline.found")
        assert (found["count"], sorted(found["ranks"])) == (known["count"], known["ranks"])
        assert [h["row"] for h in found["hits"]][:1] == [h["row"] for h in known["hits"]][:1]
    chromium.execute_script("ddprof.timeline.box.value = 'no such'; ddprof.timeline.find()")
    say = "return document.getElementById('timeline-say').textContent"
    assert "ddprof serve searches all" in wait_for(chromium, say + ".startsWith('Nothing named') && " + say[7:])
    assert trouble(chromium, address) == []
