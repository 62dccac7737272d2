"""Two runs side by side: aligned by step, coloured by the change of all calls of a name."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.timeline.difference import difference, difference_details
from ddprof.dashboard.timeline.index import SliceIndex, Slices
from ddprof.dashboard.timeline.lanes import CATEGORIES, CATEGORY, Lane, Timeline
from ddprof.dashboard.timeline.steps import RankSteps
from ddprof.errors import UsageError
from ddprof.tables import NULL
from tests.dashboard.browsing import TILES, Page, PageOf

STEP_NS = 1_000_000


def _run(calls: list[tuple[str, int, int]], late_ns: int = 0, rank: int = 0, steps: int = 2) -> Timeline:
    """One rank with one stream: (name, start in the step, length) in every step, which begin `late_ns` later."""
    names = tuple(dict.fromkeys(name for name, _, _ in calls))
    start = np.array([late_ns + n * STEP_NS + at for n in range(steps) for _, at, _ in calls])
    length = np.array([ns for _ in range(steps) for _, _, ns in calls])
    code = np.array([names.index(name) for _ in range(steps) for name, _, _ in calls])
    slices = Slices(start, start + length, np.full(len(start), CATEGORY["compute"]), code, np.arange(len(start)))
    lane = Lane(0, rank, "", "stream", "stream 7: compute", len(start))
    edges = late_ns + np.arange(steps + 1) * STEP_NS
    marks = RankSteps(rank, np.arange(steps), edges[:-1], edges[1:])
    return Timeline((lane,), names, SliceIndex([slices], len(CATEGORIES)), (marks,))


def _told(both: Timeline) -> dict[tuple[str, str], tuple[str, int]]:
    """(side, name) -> category and change in the first step."""
    index, told = both.index, {}
    rows = np.arange(len(index))
    for row in rows[index.start_ns(rows) < both.steps[0].end_ns[0]].tolist():
        lane, category = divmod(int(index.group(np.array([row]))[0]), index.categories)
        side, name = both.lanes[lane].label.split(":")[0], both.names[int(index.name[row])]
        told[side, name] = CATEGORIES[category], int(index.ref[row])
    return told


def test_levels_are_shares_of_the_step_steps_begin_alike_and_a_call_in_two_parts_is_no_change() -> None:
    before = _run([("a", 0, 200_000), ("b", 300_000, 50_000), ("c", 400_000, 90_000), ("d", 500_000, 10_000)])
    after = _run([("a", 0, 50_000), ("b", 300_000, 50_900), ("c", 400_000, 110_000), ("e", 600_000, 10_000)], 7_777)
    told = _told(difference(before, after))
    assert told["after", "a"] == told["before", "a"] == ("shrank_much", -150_000)
    assert told["after", "b"] == ("unchanged", 900) and told["before", "c"] == ("grew", 20_000)
    assert told["before", "d"] == ("only_here", NULL) and told["after", "e"] == ("only_here", NULL)
    assert ("after", "d") not in told
    both = difference(_run([("a", 100_000, 5_000)]), _run([("a", 150_000, 5_000)], late_ns=123_456))
    index = both.index
    lanes = (index.first[n * index.categories] for n in range(3))
    starts = [index.start_ns(np.arange(first, end)).tolist() for first, end in itertools.pairwise(lanes)]
    assert starts == [[150_000, STEP_NS + 150_000], [100_000, STEP_NS + 100_000]]
    assert [lane.label.split(":")[0] for lane in both.lanes] == ["after", "before"]
    both = difference(_run([("a", 0, 200_000)]), _run([("a", 0, 120_000), ("a", 400_000, 80_000)]))
    assert {category for category, _ in _told(both).values()} == {"unchanged"}


def test_a_run_beside_itself_is_unchanged_and_details_say_how_much(straggler: OpenRun) -> None:
    both: Any = difference(straggler.timeline, straggler.timeline)
    assert {CATEGORIES[g % both.index.categories] for g in np.flatnonzero(both.index.counts).tolist()} == {"unchanged"}
    assert len(both.lanes) == 2 * sum(1 for lane in straggler.timeline.lanes if lane.slices)
    both = difference(_run([("a", 0, 200_000)]), _run([("a", 0, 50_000)]))
    details = difference_details(both, 0)
    assert details["name"] == "a" and "150 µs (15 %) shorter after" in details["facts"][1]
    with pytest.raises(UsageError, match="no such slice"):
        difference_details(both, 10**6)
    one, nothing = _run([("a", 0, 5_000)]), np.empty(0, int)
    empty = replace(one, steps=(replace(one.steps[0], marked=nothing, start_ns=nothing, end_ns=nothing),))
    for why, other in {"no rank is in both": _run([("a", 0, 5_000)], rank=3), "no step is marked": empty}.items():
        with pytest.raises(UsageError, match=why):
            difference(one, other)


def test_one_click_from_compare(page: Page) -> None:
    page.visit("/compare")
    page.browser.find_element("partial link text", "Show both in the timeline").click()
    page.wait(TILES)
    labels = page.js("ddprof.timeline.openAll(); return ddprof.timeline.rows.map((r) => r.label)")
    assert {"after", "before"} <= {label.partition(": ")[0] for label in labels}
    legend = page.css(".tl-legend").text
    assert "only here" in legend and "10 % of the step" in legend
    page.js("ddprof.timeline.takeStep(1)")
    page.wait("return ddprof.timeline.root.dataset.step === '1'")
    page.js("ddprof.timeline.describe(0, true)")
    page.wait("return document.querySelector('.tl-panel h3')")
    assert "in step" in page.css(".tl-panel").text and page.trouble() == []


def test_a_saved_report_has_no_timeline_of_two(page_of: PageOf, straggler: OpenRun) -> None:
    page = page_of(straggler, OpenRun(straggler.report))
    page.visit("/compare")
    assert "No timeline of the two" in page.css("#content").text
    page.visit("/timeline?beside=1")
    assert "saved report" in page.css("#content").text and page.trouble() == []
