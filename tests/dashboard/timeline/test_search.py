"""A search of the timeline finds what the facts of all ranks hold, says what it looked through, and marks it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from ddprof.analyzers.facts.names import OP_CODE
from ddprof.dashboard.numbers import parse_numbers
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.timeline.search import MAX_HITS, Sought, places, search, sought
from ddprof.dashboard.timeline.tiles import spots
from ddprof.tables import NULL
from tests.dashboard.browsing import ENTER, PIXELS, SHIFT, Page
from tests.dashboard.made import lanes_of

ASKED = [
    *(("NCCL ", Sought("nccl")), ("rank 7", Sought("", 7)), ("Step 12", Sought("", None, 12))),
    *(('"rank 7"', Sought("rank 7")), ("ranked 7", Sought("ranked 7")), ("gemm step 3 rank  0", Sought("gemm", 0, 3))),
]
CLOSE, BOX = "const t = ddprof.timeline; t.open = new Set(); t.layout(); t.refetch()", ".tl-bar input[type=search]"
# Pixels of a closed rank's line that have the colour of marks: of the first of some ranks that is in the picture.
MARKED = f"""{PIXELS}
  const t = ddprof.timeline, row = t.visibleRows().find((r) => arguments[0].includes(r.rank) && r.isRank);
  return row && pixels(t.canvas, [0, (row.y + 2) * t.ratio], [t.painter.ink.text], 4) > 0;"""


@pytest.mark.parametrize(("text", "asked"), ASKED)
def test_a_rank_and_a_step_narrow_the_words(text: str, asked: Sought) -> None:
    assert sought(text) == asked


@pytest.fixture
def hits(straggler: OpenRun) -> Callable[..., Any]:
    """`hits(text, ...)`: the answer to a search of the straggler run."""
    return partial(search, straggler.timeline, straggler.job)


def test_hits_are_the_calls_of_all_ranks(straggler: OpenRun, hits: Callable[..., Any]) -> None:
    answer, calls, total_ns = hits("nccl"), 0, 0
    for facts in straggler.job.ranks:
        named = np.array(["nccl" in name.casefold() for name in facts.strings])
        ops = facts.device_ops.take(named[facts.device_ops["name"]])
        calls, total_ns = calls + len(ops), total_ns + int((ops["end_ns"] - ops["start_ns"]).sum())
    assert answer["count"] == calls > 0 and answer["total_us"] == pytest.approx(total_ns / 1e3)
    assert answer["ranks"] == list(straggler.job.rank_ids)
    starts = [hit["start_us"] for hit in answer["hits"]]
    assert starts == sorted(starts) and len(starts) == min(calls, MAX_HITS)
    assert hits("nccl", first=5)["hits"][: MAX_HITS - 5] == answer["hits"][5:]


def test_an_operator_and_a_collective_find_what_they_launched(straggler: OpenRun, hits: Callable[..., Any]) -> None:
    launched, reduced = 0, 0
    for facts in straggler.job.ranks:
        operators, comms = facts.device_ops["operator"], facts.device_ops["comm"]
        launched += sum("aten::" in facts.strings[code] for code in operators[operators >= 0].tolist())
        reduced += int((facts.comms["op"][comms[comms != NULL]] == OP_CODE["all_reduce"]).sum())
    answer = hits("aten::")
    assert answer["ways"]["operator"] == answer["count"] == launched > 0
    assert {hits(words)["count"] for words in ("all-reduce", "all_reduce", "AllReduce")} == {reduced} and reduced > 0


def test_words_without_letters_operators_that_were_read_ranks_and_steps_are_found(straggler: OpenRun, hits) -> None:
    assert all(hits(text)["count"] >= 0 for text in ("-", "_", '"""', "\x00", " - rank 0 step 0"))
    read = straggler.timeline_of(frozenset({0}))
    operators = [hit for hit in search(read, straggler.job, "aten::")["hits"] if read.lanes[hit["lane"]].kind == "ops"]
    assert any(hit["name"].startswith("aten::") for hit in operators)
    rank, step, mark = hits("rank 1"), hits("step 1"), int(straggler.job.ranks[0].steps["index"][1])
    assert (rank["rank"], rank["count"], rank["said"]) == (1, 0, "rank 1") and step["count"] == len(straggler.job.ranks)
    assert {hit["name"].split(" (")[0] for hit in step["hits"]} == {"step 1"}
    assert mark == 1 or hits(f"step {mark}")["hits"] == step["hits"]
    within, whole = hits("nccl step 1 rank 0"), next(hit for hit in step["hits"] if hit["rank"] == 0)
    assert 0 < within["count"] < hits("nccl rank 0")["count"]
    for hit in within["hits"]:
        assert hit["start_us"] < whole["start_us"] + whole["dur_us"]
        assert hit["start_us"] + hit["dur_us"] > whole["start_us"]


def test_what_is_not_found_says_what_was_searched(straggler: OpenRun, hits: Callable[..., Any]) -> None:
    count, only, none = len(straggler.job.ranks), parse_numbers("0"), "no such kernel"
    answer = hits(none)
    assert answer["count"] == 0 and answer["hits"] == [] and answer["places"] == []
    assert f"Nothing named “{none}” on {count} ranks. Searched: kernels" in answer["said"]
    assert "host operators: tick “operators”, which reads the traces" in answer["said"]
    read = straggler.timeline_of(frozenset({0}))
    unread = search(read, straggler.job, none)["said"]
    assert "host operators of rank" in unread and "ranks 0" not in unread
    every = replace(read, lanes=tuple(replace(lane, kind="ops") for lane in read.lanes))
    assert "host operators" not in search(every, straggler.job, none, ranks=only)["said"]
    assert hits(f"rank {count}")["said"].startswith(f"No rank {count} in this run")
    assert hits("rank 1", ranks=only)["said"] == "No rank 1 among the ranks that are shown, only rank 0"
    assert hits("step 12345")["said"].startswith("No step 12345: the run was")


def test_places_mark_closed_ranks_and_name_the_slices_of_lanes_and_spots_are_runs_of_bins(straggler: OpenRun) -> None:
    timeline, window = straggler.timeline, (straggler.index.lo_ns, straggler.index.hi_ns, 100)

    def on_lanes(kind: str, *ranks: Any) -> Any:
        lanes = [n for n in lanes_of(straggler, kind) if timeline.lanes[n].rank == 1]
        return places(timeline, straggler.job, "nccl", lanes, *window, *ranks)

    closed, more, opened = on_lanes("causes"), on_lanes("causes", parse_numbers("2-3,99")), on_lanes("stream")
    assert closed["rows"] == [] and closed["lanes"] == {} and list(closed["ranks"]) == [1]
    assert list(more["ranks"]) == [1, 2, 3] and more["ranks"][1] == closed["ranks"][1] and more["rows"] == []
    rows = np.array(opened["rows"])
    assert all("nccl" in timeline.names[code].casefold() for code in straggler.index.name[rows].tolist())
    start = straggler.index.start_ns(rows)
    assert opened["ranks"][1] == spots(start, start + straggler.index.dur_ns(rows), *window)
    first = int((start.min() - window[0]) / (window[1] - window[0]) * 100)
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


def test_a_hit_in_a_closed_rank_is_opened_and_the_others_are_marked(timeline: Page, hits) -> None:
    known = hits("nccl")
    first = known["hits"][0]
    timeline.js(CLOSE)
    timeline.wait("return ddprof.timeline.visibleRows().every((r) => r.isRank)")
    seek(timeline, "nccl")
    _shown(timeline, "nccl")
    assert timeline.js("return ddprof.timeline.found.count") == known["count"]
    assert timeline.js("return [...ddprof.timeline.open]") == [first["rank"]]
    assert timeline.js("return ddprof.timeline.activeLane") == first["lane"]
    lo, hi = (ns / 1e3 for ns in timeline.view)
    assert lo <= first["start_us"] and first["start_us"] + first["dur_us"] <= hi
    said = timeline.said
    assert said.startswith(f"1 of {known['count']:,}: {first['name']}, rank {first['rank']}") and known["said"] in said
    timeline.js("const t = ddprof.timeline; t.show(...t.bounds)")
    timeline.wait("return ddprof.timeline.found.view.hi >= ddprof.timeline.hi")
    timeline.wait(MARKED, [rank for rank in known["ranks"] if rank != first["rank"]])


def test_a_closed_group_is_marked_and_selected_as_all_of_its_ranks(timeline: Page) -> None:
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
    lanes = timeline.js(script)
    timeline.wait("return ddprof.timeline.found.view?.ranks[2]")
    assert timeline.js("return ddprof.timeline.info.lanes.filter((lane) => lane.rank <= 2).length") == lanes
    drawn = """
      const t = ddprof.timeline, drawn = [], { hitMarks } = t.painter;
      t.painter.hitMarks = (spots, view, row) => drawn.push([row.label, spots.length > 0]);
      t.painter.hits(t.visibleRows());
      delete t.painter.hitMarks;
      return drawn;"""
    marks = timeline.js(drawn)
    assert len(marks) == timeline.js("return ddprof.timeline.ranks().length")
    assert all(has for _, has in marks) and len({label for label, _ in marks}) == 2


def test_next_and_previous_go_round(timeline: Page, straggler: OpenRun) -> None:
    seek(timeline, "step 1")
    _shown(timeline, "step 1")
    assert timeline.js("return ddprof.timeline.found.at") == 0
    back, key = timeline.css("button[title^='Previous hit']").click, partial(timeline.keys, "n")
    ways = (back, key, key, partial(timeline.canvas.send_keys, SHIFT, "n"), partial(timeline.css(BOX).send_keys, ENTER))
    for go, number in zip(ways, (len(straggler.job.ranks) - 1, 0, 1, 0, 1), strict=True):
        go()
        timeline.wait(f"return ddprof.timeline.found.at === {number}")


def test_hits_beyond_the_first_are_fetched(timeline: Page, hits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddprof.dashboard.timeline.search.MAX_HITS", 3)
    seek(timeline, "nccl")
    _shown(timeline, "nccl")
    for number in range(1, 5):
        timeline.js("ddprof.timeline.stepHit(1)")
        timeline.wait(f"return ddprof.timeline.found.at === {number}")
    assert timeline.js("return ddprof.timeline.selected") == hits("nccl", first=4)["hits"][0]["row"]


def test_a_rank_is_opened_nothing_is_said_and_ticked_operators_are_searched(timeline: Page, hits) -> None:
    timeline.js(CLOSE)
    seek(timeline, "rank 2")
    timeline.wait("return ddprof.timeline.open.has(2)")
    seek(timeline, "no such kernel")
    said = "return document.getElementById('timeline-say').textContent === arguments[0]"
    timeline.wait(said, hits("no such kernel")["said"])
    assert timeline.css(".tl-bar output").text == "none"
    seek(timeline, "aten::")
    _shown(timeline, "aten::")
    before = timeline.js("return ddprof.timeline.found.count")
    timeline.press("operators")
    timeline.wait(f"return ddprof.timeline.found && ddprof.timeline.found.count > {before}")


def test_the_file_finds_the_same(file_timeline: Page, hits) -> None:
    for text in ("nccl", "step 1", "nccl rank 1 step 1"):
        known = hits(text)
        file_timeline.js(f"ddprof.timeline.box.value = '{text}'; ddprof.timeline.find()")
        _shown(file_timeline, text)
        answer = file_timeline.js("return ddprof.timeline.found")
        assert (answer["count"], sorted(answer["ranks"])) == (known["count"], known["ranks"])
        assert [h["row"] for h in answer["hits"]][:1] == [h["row"] for h in known["hits"]][:1]
    file_timeline.js("ddprof.timeline.box.value = 'no such'; ddprof.timeline.find()")
    say = "return document.getElementById('timeline-say').textContent"
    assert "ddprof serve searches all" in file_timeline.wait(say + ".startsWith('Nothing named') && " + say[7:])
