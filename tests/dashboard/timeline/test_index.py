"""Steps of the timeline: the job's own, and numbers of a folded step hold only what lies in it."""

from dataclasses import replace

import numpy as np
import pytest

from ddprof.causes import CAUSES
from ddprof.dashboard.exhibits.timeline import configuration
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.timeline.index import one_step, step_count
from ddprof.dashboard.timeline.selection import selection_statistics
from tests.dashboard.browsing import RIGHT, Page
from tests.dashboard.made import alone, lanes_of

FOLDED = "return ddprof.timeline.root.dataset.folded === 'true'"
# The first painted column of each row of a rank, and the last: pixels that are not the ground's.
PAINTED = """
  const t = ddprof.timeline, pen = t.canvas.getContext("2d");
  return t.visibleRows().filter((r) => r.isRank && r.lane !== undefined).map((row) => {
    const y = Math.round((row.y + row.height / 2) * t.ratio), from = Math.round(ddprof.GUTTER * t.ratio) + 1;
    const line = pen.getImageData(from, y, t.canvas.width - from, 1).data;
    const ink = line.filter((_, i) => i % 4 === 3), is = (alpha) => alpha > 0;
    const at = (pixel) => t.ns(ddprof.GUTTER + pixel / t.ratio);
    return [at(ink.findIndex(is)), at(ink.findLastIndex(is)), row.rank];
  });"""


def test_a_step_is_where_each_rank_that_has_it_has_it(straggler: OpenRun) -> None:
    job, steps = straggler.job, straggler.timeline.steps
    assert step_count(steps) == straggler.step_count > 1
    told = one_step(steps, 1)
    assert told["number"] == 1 and told["words"].startswith("step 1")
    for position, (rank, *span_us) in enumerate(told["ranks"]):
        assert rank == job.rank_ids[position]
        times_ns = (job.ranks[position].steps[column][1] for column in ("start_ns", "end_ns"))
        assert span_us == [(ns - job.shift_ns(position)) / 1e3 for ns in times_ns]
    first, *others = steps
    cut = replace(first, number=first.number[1:], start_ns=first.start_ns[1:], end_ns=first.end_ns[1:])
    assert step_count((cut, *others)) == len(first.number) and one_step((cut,), 1)["ranks"] == told["ranks"][:1]
    assert [rank for rank, _, _ in one_step((cut, *others), 0)["ranks"]] == [of.rank for of in others]


def test_numbers_of_a_folded_step_are_those_of_the_ledger(straggler: OpenRun) -> None:
    """A window beyond the step's ends is cut to the step: its causes are what the ledger books to it."""
    timeline, job, codes = straggler.timeline, straggler.job, list(CAUSES.values())
    by_cause = {}
    for lane in lanes_of(straggler, "causes"):
        for row in selection_statistics(timeline, [lane], -(10**9), 10**12, step=1)["causes"]:
            by_cause[timeline.lanes[lane].rank, row["cause"]] = row["total_ns"]
    booked = [row for row in job.ledger.rows() if row["step"] == 1 and row["dur_ns"]]
    assert by_cause == {(job.rank_ids[r["rank"]], codes[r["cause"]].label): r["dur_ns"] for r in booked}


def test_names_of_a_folded_range_are_cut_to_it(straggler: OpenRun) -> None:
    timeline, lanes = straggler.timeline, lanes_of(straggler, "stream")
    span = min(int((of.end_ns - of.start_ns)[1]) for of in timeline.steps)
    half, whole = (selection_statistics(timeline, lanes, 0, until, step=1)["names"] for until in (span // 2, 10**12))
    half_ns, whole_ns = (sum(row["total_ns"] for row in rows if row["calls"]) for rows in (half, whole))
    assert half_ns <= len(lanes) * (span // 2) and 0 < half_ns < whole_ns
    nothing = selection_statistics(timeline, lanes, 0, 10**6, step=straggler.step_count + 5)
    assert nothing["causes"] == [] and nothing["names"] == [] and len(timeline.steps) > 1


def test_the_address_names_the_step_and_a_filter_of_steps_shows_them_on_all_ranks(straggler: OpenRun) -> None:
    told = configuration(alone(straggler, step="1", fold="1"))
    assert (told["step"], told["fold"]) == (1, True)
    for wrong in ("99999", "-1", "x", "١", "1" * 30):
        told = configuration(alone(straggler, step=wrong))
        assert (told["step"], told["fold"]) == (None, False)
    told = configuration(alone(straggler, steps="1"))
    spans = np.array([span[1:] for span in one_step(straggler.timeline.steps, 1)["ranks"]])
    assert (told["from_us"], told["to_us"]) == (spans[:, 0].min(), spans[:, 1].max())


def _spans(run: OpenRun, number: int) -> dict[int, tuple[float, float]]:
    return {rank: (lo * 1e3, hi * 1e3) for rank, lo, hi in one_step(run.timeline.steps, number)["ranks"]}


def _at_step(page: Page, number: int) -> list[float]:
    page.wait(f"return ddprof.timeline.root.dataset.step === '{number}'")
    return page.view


def test_a_step_is_picked_by_number_slider_and_keys(timeline: Page, straggler: OpenRun) -> None:
    box = timeline.css(".tl-steps input[type=number]")
    box.send_keys("1\n")
    lo, hi = _at_step(timeline, 1)
    spans = _spans(straggler, 1)
    first, last = min(s[0] for s in spans.values()), max(s[1] for s in spans.values())
    assert lo <= first and last <= hi and hi - lo < 1.1 * (last - first)
    timeline.menu()  # in a window of this width the slider has no room in the bar
    timeline.css(".tl-steps input[type=range]").send_keys(RIGHT)
    assert _at_step(timeline, 2)[0] > lo
    timeline.keys(",")
    assert _at_step(timeline, 1) == pytest.approx([lo, hi])
    assert timeline.css(".tl-steps input[type=range]").get_attribute("value") == "1"
    box.clear()
    box.send_keys("999\n")
    _at_step(timeline, straggler.step_count - 1)


def test_folded_every_rank_begins_at_zero_and_ends_with_its_step_until_led_away(page: Page, straggler: OpenRun) -> None:
    page.visit("/timeline?step=1&fold=1")
    page.wait(FOLDED)
    page.js("const t = ddprof.timeline; t.open.clear(); t.layout()")
    tiles = page.js("return Number(ddprof.timeline.root.dataset.tiles)")
    page.js("ddprof.timeline.refetch()")
    page.wait(f"return Number(ddprof.timeline.root.dataset.tiles) > {tiles}")
    page.js("const t = ddprof.timeline; t.showPath = false; t.kept = t.spans; t.spans = []; t.painter.paint()")
    lo, hi = page.view
    pixel = (hi - lo) / page.js("return ddprof.timeline.width - ddprof.GUTTER")
    assert page.trouble() == []  # Chromium itself warns of reading pixels
    painted, spans = page.js(PAINTED), _spans(straggler, 1)
    assert {rank for _, _, rank in painted} == set(spans)
    for first, last, rank in painted:
        assert first == pytest.approx(0, abs=3 * pixel), rank
        assert last == pytest.approx(spans[rank][1] - spans[rank][0], abs=3 * pixel), rank
    assert "start of it" in page.said
    page.js("ddprof.timeline.range = [0, 1e12]; ddprof.timeline.statistics()")
    page.wait("return document.querySelector('.tl-panel h3')")
    entries = "performance.getEntriesByType('resource').filter((e) => e.name.includes('statistics'))"
    asked = page.js(f"return {entries}.at(-1).name")
    assert "step=1" in asked and "lo=0" in asked
    page.js("ddprof.timeline.spans = ddprof.timeline.kept; ddprof.timeline.jump(0)")
    assert page.js("return ddprof.timeline.isFolded") is False
    assert not page.css(".tl-steps input[type=checkbox]").is_selected()


def test_a_copied_link_shows_the_folded_step(timeline: Page) -> None:
    timeline.css(".tl-steps input[type=checkbox]").click()
    timeline.wait(FOLDED)
    timeline.js("ddprof.timeline.stepBy(1)")
    _at_step(timeline, 1)
    timeline.js("ddprof.timeline.zoom(0.5)")
    timeline.wait("return location.search.includes('fold=1') && location.search.includes('step=1')")
    seen = timeline.view
    timeline.wait(f"return location.search.includes('to=' + (Math.round({seen[1]}) / 1e3).toFixed(1))")
    timeline.visit("/timeline" + timeline.js("return location.search"))
    timeline.wait(FOLDED)
    assert _at_step(timeline, 1) == pytest.approx(seen, abs=200)


def test_the_file_folds_without_a_server(file_timeline: Page, straggler: OpenRun) -> None:
    file_timeline.js("ddprof.timeline.takeStep(1).then(() => ddprof.timeline.setFold(true))")
    file_timeline.wait(FOLDED)
    longest = max(hi - lo for lo, hi in _spans(straggler, 1).values())
    assert file_timeline.js("return ddprof.timeline.bounds[1]") == pytest.approx(longest * 1.02, rel=1e-3)
    file_timeline.js("ddprof.timeline.range = [-1e9, 1e12]; ddprof.timeline.statistics()")
    file_timeline.wait("return document.querySelector('.tl-panel h3')")
