"""A search of the timeline finds what the facts of all ranks hold, says what it looked through, and marks it."""

from dataclasses import replace

import numpy as np
import pytest

from ddprof.analyzers.facts.names import OP_CODE
from ddprof.dashboard.numbers import parse_numbers
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.timeline.overview import spots
from ddprof.dashboard.timeline.search import MAX_HITS, Sought, places, search, sought
from ddprof.tables import NULL
from tests.dashboard.browsing import ENTER, Page

ASKED = [
    ("NCCL ", Sought("nccl")),
    ("rank 7", Sought("", 7)),
    ("Step 12", Sought("", None, 12)),
    ("gemm step 3 rank  0", Sought("gemm", 0, 3)),
    ('"rank 7"', Sought("rank 7")),
    ("ranked 7", Sought("ranked 7")),
]
CLOSE = "const t = ddprof.timeline; t.open = new Set(); t.layout(); t.refetch()"
BOX = ".tl-bar input[type=search]"
SHIFT = "\ue008"
# Pixels of a closed rank's line that have the colour of marks: of the first of some ranks that is in the picture.
MARKED = """
  const t = ddprof.timeline, row = t.visibleRows().find((r) => arguments[0].includes(r.rank) && r.isRank);
  if (!row) return 0;
  const want = t.painter.ink.text.match(/[0-9a-f]{2}/gi).map((h) => parseInt(h, 16));
  const line = t.canvas.getContext('2d').getImageData(0, (row.y + 2) * t.ratio, t.canvas.width, 1).data;
  let found = 0;
  for (let i = 0; i < line.length; i += 4) found += want.every((v, k) => Math.abs(line[i + k] - v) < 4);
  return found;"""


@pytest.mark.parametrize(("text", "asked"), ASKED)
def test_a_rank_and_a_step_narrow_the_words(text: str, asked: Sought) -> None:
    assert sought(text) == asked


def test_hits_are_the_calls_of_all_ranks(straggler: OpenRun) -> None:
    found = search(straggler.timeline, straggler.job, "nccl")
    calls, total_ns = 0, 0
    for facts in straggler.job.ranks:
        named = np.array(["nccl" in name.casefold() for name in facts.strings])
        ops = facts.device_ops.take(named[facts.device_ops["name"]])
        calls, total_ns = calls + len(ops), total_ns + int((ops["end_ns"] - ops["start_ns"]).sum())
    assert found["count"] == calls > 0 and found["total_us"] == pytest.approx(total_ns / 1e3)
    assert found["ranks"] == list(straggler.job.rank_ids)
    starts = [hit["start_us"] for hit in found["hits"]]
    assert starts == sorted(starts) and len(starts) == min(calls, MAX_HITS)
    later = search(straggler.timeline, straggler.job, "nccl", first=5)["hits"]
    assert later[: MAX_HITS - 5] == found["hits"][5:]


def test_an_operator_and_a_collective_find_what_they_launched(straggler: OpenRun) -> None:
    launched, reduced = 0, 0
    for facts in straggler.job.ranks:
        ops = facts.device_ops
        known = ops["operator"] >= 0
        launched += sum("aten::" in facts.strings[code] for code in ops["operator"][known].tolist())
        comm = ops["comm"][ops["comm"] != NULL]
        reduced += int((facts.comms["op"][comm] == OP_CODE["all_reduce"]).sum())
    by_operator = search(straggler.timeline, straggler.job, "aten::")
    assert by_operator["ways"]["operator"] == by_operator["count"] == launched > 0
    for spelled in ("all-reduce", "all_reduce", "AllReduce"):
        assert search(straggler.timeline, straggler.job, spelled)["count"] == reduced > 0


def test_words_without_letters_operators_that_were_read_ranks_and_steps_are_found(straggler: OpenRun) -> None:
    for text in ("-", "_", '"""', "\x00", " - rank 0 step 0"):
        assert search(straggler.timeline, straggler.job, text)["count"] >= 0
    read = straggler.timeline_of(frozenset({0}))
    lanes = [n for n, lane in enumerate(read.lanes) if lane.kind == "ops"]
    hits = search(read, straggler.job, "aten::")["hits"]
    assert any(hit["lane"] in lanes and hit["name"].startswith("aten::") for hit in hits)
    rank = search(straggler.timeline, straggler.job, "rank 1")
    assert (rank["rank"], rank["count"], rank["said"]) == (1, 0, "rank 1")
    step = search(straggler.timeline, straggler.job, "step 1")
    assert step["count"] == len(straggler.job.ranks)
    assert {hit["name"].split(" (")[0] for hit in step["hits"]} == {"step 1"}
    mark = int(straggler.job.ranks[0].steps["index"][1])
    if mark != 1:
        assert search(straggler.timeline, straggler.job, f"step {mark}")["hits"] == step["hits"]
    within = search(straggler.timeline, straggler.job, "nccl step 1 rank 0")
    whole = next(hit for hit in step["hits"] if hit["rank"] == 0)
    assert 0 < within["count"] < search(straggler.timeline, straggler.job, "nccl rank 0")["count"]
    for hit in within["hits"]:
        assert hit["start_us"] < whole["start_us"] + whole["dur_us"]
        assert hit["start_us"] + hit["dur_us"] > whole["start_us"]


def test_what_is_not_found_says_what_was_searched(straggler: OpenRun) -> None:
    said = search(straggler.timeline, straggler.job, "no such kernel")
    assert said["count"] == 0 and said["hits"] == [] and said["places"] == []
    assert f"Nothing named “no such kernel” on {len(straggler.job.ranks)} ranks. Searched: kernels" in said["said"]
    assert "host operators: tick “operators”, which reads the traces" in said["said"]
    read = straggler.timeline_of(frozenset({0}))
    unread = search(read, straggler.job, "no such kernel")["said"]
    assert "host operators of rank" in unread and "ranks 0" not in unread
    every = replace(read, lanes=tuple(replace(lane, kind="ops") for lane in read.lanes))
    assert "host operators" not in search(every, straggler.job, "no such kernel", ranks=parse_numbers("0"))["said"]
    count = len(straggler.job.ranks)
    assert search(straggler.timeline, straggler.job, f"rank {count}")["said"].startswith(f"No rank {count} in this run")
    left_out = search(straggler.timeline, straggler.job, "rank 1", ranks=parse_numbers("0"))["said"]
    assert left_out == "No rank 1 among the ranks that are shown, only rank 0"
    assert search(straggler.timeline, straggler.job, "step 12345")["said"].startswith("No step 12345: the run was")


def test_places_mark_closed_ranks_and_name_the_slices_of_lanes_and_spots_are_runs_of_bins(straggler: OpenRun) -> None:
    timeline, index = straggler.timeline, straggler.index
    lane = next(n for n, known in enumerate(timeline.lanes) if known.rank == 1 and known.kind == "causes")
    closed = places(timeline, straggler.job, "nccl", [lane], index.lo_ns, index.hi_ns, 100)
    assert closed["rows"] == [] and closed["lanes"] == {} and list(closed["ranks"]) == [1]
    more = places(timeline, straggler.job, "nccl", [lane], index.lo_ns, index.hi_ns, 100, parse_numbers("2-3,99"))
    assert list(more["ranks"]) == [1, 2, 3] and more["ranks"][1] == closed["ranks"][1] and more["rows"] == []
    lanes = [n for n, known in enumerate(timeline.lanes) if known.rank == 1 and known.kind == "stream"]
    opened = places(timeline, straggler.job, "nccl", lanes, index.lo_ns, index.hi_ns, 100)
    rows = np.array(opened["rows"])
    assert all("nccl" in timeline.names[code].casefold() for code in index.name[rows].tolist())
    start = index.start_ns(rows)
    assert opened["ranks"][1] == spots(start, start + index.dur_ns(rows), index.lo_ns, index.hi_ns, 100)
    first = int((start.min() - index.lo_ns) / (index.hi_ns - index.lo_ns) * 100)
    assert opened["ranks"] == closed["ranks"] and opened["ranks"][1][0] == first
    start, end = np.array([0, 25, 30, 95, 200]), np.array([5, 30, 31, 120, 210])
    assert spots(start, end, 0, 100, 10) == [0, 0, 2, 3, 9, 9] and spots(start[:0], end[:0], 0, 100, 10) == []
    assert spots(np.array([-(10**18)]), np.array([10**18]), -5, 5, 4) == [0, 3]


def seek(page: Page, text: str) -> None:
    box = page.css(BOX)
    box.clear()
    box.send_keys(text + ENTER)


def _shown(page: Page, text: str) -> None:
    """Wait until the hits of a search are placed in the picture."""
    page.wait(f"return ddprof.timeline.root.dataset.placed === '{text}' && ddprof.timeline.found?.view")


def test_a_hit_in_a_closed_rank_is_opened_and_the_others_are_marked(page: Page, straggler: OpenRun) -> None:
    page.visit("/timeline")
    page.js(CLOSE)
    page.wait("return ddprof.timeline.visibleRows().every((r) => r.isRank)")
    seek(page, "nccl")
    _shown(page, "nccl")
    known = search(straggler.timeline, straggler.job, "nccl")
    first = known["hits"][0]
    assert page.js("return ddprof.timeline.found.count") == known["count"]
    assert page.js("return [...ddprof.timeline.open]") == [first["rank"]]
    assert page.js("return ddprof.timeline.activeLane") == first["lane"]
    lo, hi = page.js("return [ddprof.timeline.lo / 1e3, ddprof.timeline.hi / 1e3]")
    assert lo <= first["start_us"] and first["start_us"] + first["dur_us"] <= hi
    said = page.said
    assert said.startswith(f"1 of {known['count']:,}: {first['name']}, rank {first['rank']}") and known["said"] in said
    page.js("const t = ddprof.timeline; t.show(...t.bounds)")
    others = [rank for rank in known["ranks"] if rank != first["rank"]]
    page.wait("return ddprof.timeline.found.view.hi >= ddprof.timeline.hi")
    page.wait(f"return (function () {{{MARKED}}})({others}) > 0")
    assert page.trouble() == []


def test_a_closed_group_is_marked_and_selected_as_all_of_its_ranks(page: Page) -> None:
    page.visit("/timeline")
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
    lanes = page.js(script)
    page.wait("return ddprof.timeline.found.view?.ranks[2]")
    assert page.js("return ddprof.timeline.info.lanes.filter((lane) => lane.rank <= 2).length") == lanes
    drawn = """
      const t = ddprof.timeline, drawn = [], { hitMarks } = t.painter;
      t.painter.hitMarks = (spots, view, row) => drawn.push([row.label, spots.length > 0]);
      t.painter.hits(t.visibleRows());
      delete t.painter.hitMarks;
      return drawn;"""
    marks = page.js(drawn)
    assert len(marks) == page.js("return ddprof.timeline.ranks().length")
    assert all(has for _, has in marks) and len({label for label, _ in marks}) == 2


def test_next_and_previous_go_round(page: Page, straggler: OpenRun) -> None:
    page.visit("/timeline")
    seek(page, "step 1")
    _shown(page, "step 1")
    count = len(straggler.job.ranks)
    assert page.js("return ddprof.timeline.found.at") == 0
    page.css("button[title^='Previous hit']").click()
    page.wait(f"return ddprof.timeline.found.at === {count - 1}")
    page.keys("n")
    page.wait("return ddprof.timeline.found.at === 0")
    page.keys("n")
    page.wait("return ddprof.timeline.found.at === 1")
    page.css(".tl-scroll canvas").send_keys(SHIFT, "n")
    page.wait("return ddprof.timeline.found.at === 0")
    page.css(BOX).send_keys(ENTER)
    page.wait("return ddprof.timeline.found.at === 1")


def test_hits_beyond_the_first_are_fetched(page: Page, straggler: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddprof.dashboard.timeline.search.MAX_HITS", 3)
    page.visit("/timeline")
    seek(page, "nccl")
    _shown(page, "nccl")
    for number in range(1, 5):
        page.js("ddprof.timeline.stepHit(1)")
        page.wait(f"return ddprof.timeline.found.at === {number}")
    hit = search(straggler.timeline, straggler.job, "nccl", first=4)["hits"][0]
    assert page.js("return ddprof.timeline.selected") == hit["row"]


def test_a_rank_is_opened_nothing_is_said_and_ticked_operators_are_searched(page: Page, straggler: OpenRun) -> None:
    page.visit("/timeline")
    page.js(CLOSE)
    seek(page, "rank 2")
    page.wait("return ddprof.timeline.open.has(2)")
    seek(page, "no such kernel")
    words = search(straggler.timeline, straggler.job, "no such kernel")["said"]
    page.wait(f"return document.getElementById('timeline-say').textContent === {words!r}")
    assert page.css(".tl-bar output").text == "none"
    seek(page, "aten::")
    _shown(page, "aten::")
    before = page.js("return ddprof.timeline.found.count")
    label = next(e for e in page.menu().find_elements("css selector", "label") if "operators" in e.text)
    label.find_element("css selector", "input").click()
    page.wait(f"return ddprof.timeline.found && ddprof.timeline.found.count > {before}")
    assert page.trouble() == []


def test_the_file_finds_the_same(file_page: Page, straggler: OpenRun) -> None:
    page = file_page.open("#timeline")
    for text in ("nccl", "step 1", "nccl rank 1 step 1"):
        known = search(straggler.timeline, straggler.job, text)
        page.js(f"ddprof.timeline.box.value = '{text}'; ddprof.timeline.find()")
        _shown(page, text)
        found = page.js("return ddprof.timeline.found")
        assert (found["count"], sorted(found["ranks"])) == (known["count"], known["ranks"])
        assert [h["row"] for h in found["hits"]][:1] == [h["row"] for h in known["hits"]][:1]
    page.js("ddprof.timeline.box.value = 'no such'; ddprof.timeline.find()")
    say = "return document.getElementById('timeline-say').textContent"
    assert "ddprof serve searches all" in page.wait(say + ".startsWith('Nothing named') && " + say[7:])
    assert page.trouble() == []
