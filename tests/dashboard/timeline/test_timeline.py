"""The index is exact whatever the window; lanes, tiles and answers of the timeline agree with the job's own tables.

So does the map above them, whose box follows the view and moves it, and two runs side by side, aligned by step.
"""

import gzip
import itertools
import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddprof.causes import CAUSE_IDS
from ddprof.dashboard.numbers import parse_numbers
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.server.routes import RangeAsked, asked
from ddprof.dashboard.timeline.categories import CATEGORIES, CATEGORY
from ddprof.dashboard.timeline.difference import difference, difference_details
from ddprof.dashboard.timeline.index import RankSteps, SliceIndex, Slices
from ddprof.dashboard.timeline.inspect import largest_waits, slice_details
from ddprof.dashboard.timeline.lanes import Lane, Timeline, disjoint_rows, stream_words, thread_words
from ddprof.dashboard.timeline.tiles import BINS, MAX_LANES, encode, overview, timeline_info
from ddprof.errors import UsageError
from ddprof.model import TRACKS
from ddprof.tables import NULL
from tests.dashboard.browsing import END, HOME, LEFT, PAGE_UP, PIXELS, RIGHT, TILES, Page, PageOf
from tests.dashboard.made import lanes_of

KINDS, STEP_NS = 3, 1_000_000
Cut = tuple[int, int, int]  # length, gap after it, category of a slice
cuts_of_lane = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 30), st.integers(0, KINDS - 1)), max_size=30)
lanes_of_cuts = st.lists(cuts_of_lane, min_size=1, max_size=4)
WORDS = {"pid": ["0", "1", "9"], "tid": ["7", "20", "41"], "name": ["", "", "pt_autograd_0"]}
TWO_DEVICES = TRACKS.table({**WORDS, "device": [0, 1, NULL], "stream": [7, 20, NULL]})

QUARTER = "const t = ddprof.timeline, [a, b] = t.runBounds; t.show(a + (b - a) / 4, a + (b - a) / 2)"
PLACED = "return parseFloat(ddprof.timeline.mapBox.style.left) > 0"
_BOX = """
  const s = ddprof.timeline.mapBox.style, w = ddprof.timeline.map.clientWidth;
  return [parseFloat(s.left) / w, (parseFloat(s.left) + parseFloat(s.width)) / w]"""


def _lane(cuts: list[Cut], origin: int) -> Slices:
    lengths, gaps, category = np.array(cuts, np.int64).reshape(-1, 3).T
    end = origin + np.cumsum(lengths + gaps) - gaps
    number = np.arange(len(cuts))
    return Slices(end - lengths, end, category, number, number)


@given(lanes_of_cuts, st.integers(-40, 40), st.integers(-100, 2000), st.integers(0, 2000))
def test_busy_time_of_any_window_is_exact(cuts: list[list[Cut]], origin: int, lo: int, width: int) -> None:
    lanes = [_lane(c, origin) for c in cuts]
    index = SliceIndex(lanes, KINDS)
    groups = index.groups_of(np.arange(len(lanes)))
    busy = index.busy(groups, np.array([lo, lo + width]))[:, 0]
    for group, busy_ns in zip(groups.tolist(), busy.tolist(), strict=True):
        lane = lanes[group // KINDS]
        inside = np.minimum(lane.end_ns, lo + width) - np.maximum(lane.start_ns, lo)
        assert busy_ns == np.maximum(inside, 0)[lane.category == group % KINDS].sum()


@given(lanes_of_cuts, st.integers(-100, 2000), st.integers(1, 2000))
def test_rows_of_a_window_are_the_slices_that_overlap_it(cuts: list[list[Cut]], lo: int, width: int) -> None:
    lanes = [_lane(c, 0) for c in cuts]
    index = SliceIndex(lanes, KINDS)
    rows = index.rows(index.groups_of(np.arange(len(lanes))), lo, lo + width)
    told = sorted(zip(rows.lane.tolist(), rows.start_ns.tolist(), rows.dur_ns.tolist(), strict=True))
    cuts = ((n, *cut) for n, lane in enumerate(lanes) for cut in zip(lane.start_ns, lane.end_ns, strict=True))
    wanted = sorted((n, int(start), int(end - start)) for n, start, end in cuts if start < lo + width and end > lo)
    if lo < index.hi_ns and lo + width > index.lo_ns:
        assert told == wanted


def test_a_row_leads_back_to_its_slice_no_slices_are_an_answer_and_outer_spans_lie_above() -> None:
    index = SliceIndex([_lane([(5, 1, 0), (7, 2, 1), (3, 0, 0)], 100)], KINDS)
    rows = np.arange(len(index))
    columns = (index.start_ns(rows), index.dur_ns(rows), index.ref[rows])
    assert sorted(np.stack(columns, axis=1).tolist()) == [[100, 5, 0], [106, 7, 1], [115, 3, 2]]
    index = SliceIndex([_lane([], 0)], KINDS)
    groups = index.groups_of(np.array([0]))
    assert len(index) == 0 and len(groups) == 0 and len(index.rows(groups, 0, 10).row) == 0
    start, end = np.array([0, 2, 5, 10]), np.array([9, 4, 8, 12])
    assert [row.tolist() for row in disjoint_rows(start, end)] == [[0, 3], [1, 2]]


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 40)), max_size=40))
def test_rows_hold_every_span_once_and_never_overlap(spans: list[tuple[int, int]]) -> None:
    start = np.array([s for s, _ in spans], np.int64)
    end = start + np.array([d for _, d in spans], np.int64)
    rows = disjoint_rows(start, end)
    assert sorted(np.concatenate([np.empty(0, np.int64), *rows]).tolist()) == list(range(len(spans)))
    for row in rows:
        assert np.all(start[row][1:] >= end[row][:-1])


def _decode(body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a tile, by the layout its module documents."""
    assert body[:4] == b"DDT1"
    (length,) = struct.unpack("<I", body[4:8])
    header, at = json.loads(body[8 : 8 + length]), 8 + length
    total, arrays = sum(header["counts"]), {}
    for name, dtype in (("start", "<f4"), ("dur", "<f4"), ("name", "<u4"), ("row", "<u4"), ("category", "u1")):
        arrays[name] = np.frombuffer(body, dtype, total, at)
        at += arrays[name].nbytes
    at += -total % 8
    for name in ("dominant", "share"):
        count = len(header["binned"]) * header["bins"]
        arrays[name] = np.frombuffer(body, "u1", count, at).reshape(-1, header["bins"])
        at += count
    assert at == len(body)
    return header, arrays


def test_an_exact_tile_holds_the_slices_and_lanes_of_causes_the_ledger(straggler: OpenRun) -> None:
    timeline, job, index = straggler.timeline, straggler.job, straggler.index
    for lane in lanes_of(straggler, "causes"):
        position = timeline.lanes[lane].position
        steps = job.ranks[position].steps
        window = np.array([steps["start_ns"][0], steps["end_ns"][-1]]) - job.shift_ns(position)
        groups, mine = index.groups_of(np.array([lane])), job.ledger["rank"] == position
        for group, ns in zip(groups % index.categories, index.busy(groups, window)[:, 0], strict=True):
            assert ns == job.ledger["dur_ns"][mine & (job.ledger["cause"] == group)].sum(), CAUSE_IDS[group]
    lanes = list(range(len(timeline.lanes)))
    header, arrays = _decode(encode(timeline, lanes, index.lo_ns, index.hi_ns, 100))
    assert header["exact"] == lanes and header["binned"] == []
    assert header["counts"] == [lane.slices for lane in timeline.lanes]
    assert np.allclose(arrays["start"], (index.start_ns(arrays["row"].astype(np.int64)) - index.lo_ns) / 1e3, atol=0.02)
    assert set(map(int, header["names"])) == set(arrays["name"].tolist())


def test_a_binned_tile_holds_the_busy_share(straggler: OpenRun) -> None:
    index, lane = straggler.index, lanes_of(straggler, "stream")[0]
    header, arrays = _decode(encode(straggler.timeline, [lane], index.lo_ns, index.hi_ns, 50, 0))
    assert header["binned"] == [lane] and header["exact"] == []
    edges = np.linspace(index.lo_ns, index.hi_ns, 51).astype(np.int64)
    busy = index.busy(index.groups_of(np.array([lane])), edges).sum(axis=0)
    assert np.allclose(arrays["share"][0] / 255, busy / np.diff(edges), atol=1 / 255 + 1e-6)
    assert CATEGORY["compute"] in arrays["dominant"][0]


def test_lanes_of_a_kind_are_sent_alike_and_bad_requests_are_refused(straggler: OpenRun) -> None:
    timeline, index, causes = straggler.timeline, straggler.index, lanes_of(straggler, "causes")
    budget = sum(timeline.lanes[i].slices for i in causes) - 1  # all of them but one would fit
    for most, exact, binned in ((budget, [], causes), (budget + 1, causes, [])):
        header, _ = _decode(encode(timeline, causes, index.lo_ns, index.hi_ns, 50, most))
        assert (header["exact"], header["binned"]) == (exact, binned)
    for lane, lo_ns, why in ((0, 10, "empty"), (10**6, 0, "no such lane")):
        with pytest.raises(UsageError, match=why):
            asked(RangeAsked, {"lanes": str(lane), "lo": str(lo_ns), "hi": "10"}).lanes_of(index)
    header, _ = _decode(encode(timeline, [0] * (MAX_LANES + 5), 0, 10, 10**9))
    assert len(header["exact"]) <= MAX_LANES and header["bins"] <= 4096


def test_a_waiting_slice_names_the_late_rank(straggler: OpenRun) -> None:
    index, culprit = straggler.index, straggler.report.ranked_findings()[0].ranks[0]
    assert largest_waits(straggler.job, index.lo_ns, index.hi_ns)[0]["culprit"] == culprit
    rows = index.rows(index.groups_of(np.array(lanes_of(straggler, "stream"))), index.lo_ns, index.hi_ns)
    waiting = np.flatnonzero(rows.category == CATEGORY["comm_wait"])
    details = slice_details(straggler.timeline, straggler.job, int(rows.row[waiting[rows.dur_ns[waiting].argmax()]]))
    late = [m["rank"] for m in details["members"] if m["late"]]
    assert len(late) == 1 and f"rank {late[0]} came last" in details["facts"]
    assert details["rank"] in [m["rank"] for m in details["members"] if m["ready_us"] > m["start_us"]]
    with pytest.raises(UsageError, match="no such slice"):
        slice_details(straggler.timeline, straggler.job, len(index))


def test_words_of_threads_categories_and_streams_of_the_file(straggler: OpenRun, straggler_traces: Path) -> None:
    assert thread_words(TWO_DEVICES, 2) == "pt_autograd_0 (thread 41)"
    assert thread_words(TWO_DEVICES, 1) == "thread 20" and thread_words(TWO_DEVICES, 9) == "thread not recorded"
    assert stream_words(TWO_DEVICES, 1) == "device 1 stream 20"
    assert stream_words(TWO_DEVICES.take([0, 2]), 0) == "stream 7"
    categories = {c["words"]: c for c in timeline_info(straggler.timeline)["categories"]}
    assert [words for words, c in categories.items() if c["texture"]] == ["waiting for late ranks"]
    assert categories["other idle"]["idle"]
    assert not any(categories[words]["idle"] for words in ("compute", "waiting for late ranks", "forward"))
    events = json.loads(gzip.decompress(min(straggler_traces.glob("*.gz")).read_bytes()))["traceEvents"]
    recorded = {e["args"]["stream"] for e in events if e.get("cat") == "kernel"}
    rank = straggler.timeline.lanes[0].rank
    labels = [lane.label for lane in straggler.timeline.lanes if lane.kind == "stream" and lane.rank == rank]
    assert recorded <= {int(label.split(":")[0].split()[1]) for label in labels}


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


def _run(calls: list[tuple[str, int, int]], late_ns: int = 0, rank: int = 0, steps: int = 2) -> Timeline:
    """One rank with one stream: (name, start in the step, length) in every step, which begin `late_ns` later."""
    names = tuple(dict.fromkeys(name for name, _, _ in calls))
    start = np.array([late_ns + n * STEP_NS + at for n in range(steps) for _, at, _ in calls])
    length = np.array([ns for _ in range(steps) for _, _, ns in calls])
    code = np.array([names.index(name) for _ in range(steps) for name, _, _ in calls])
    slices = Slices(start, start + length, np.full(len(start), CATEGORY["compute"]), code, np.arange(len(start)))
    lane = Lane(0, rank, "", "stream", "stream 7: compute", len(start))
    edges = late_ns + np.arange(steps + 1) * STEP_NS
    marks = RankSteps(rank, np.arange(steps), np.arange(steps), edges[:-1], edges[1:])
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
    empty = replace(one, steps=(RankSteps(one.steps[0].rank, nothing, nothing, nothing, nothing),))
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
