"""A search of the timeline finds what the facts of all ranks hold, says what it looked through, and marks it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddprof.analyzers.facts.names import OP_CODE
from ddprof.dashboard.numbers import parse_numbers
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.timeline.search import MAX_HITS, Sought, places, search, sought
from ddprof.dashboard.timeline.spots import spots
from ddprof.tables import NULL


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("NCCL ", Sought("nccl")),
        ("rank 7", Sought("", 7)),
        ("Step 12", Sought("", None, 12)),
        ("gemm step 3 rank  0", Sought("gemm", 0, 3)),
        ('"rank 7"', Sought("rank 7")),
        ("ranked 7", Sought("ranked 7")),
    ],
)
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


def test_words_without_letters_are_words(straggler: OpenRun) -> None:
    for text in ("-", "_", '"""', "\x00", " - rank 0 step 0"):
        assert search(straggler.timeline, straggler.job, text)["count"] >= 0


def test_a_rank_and_a_step_are_found_by_number(straggler: OpenRun) -> None:
    rank = search(straggler.timeline, straggler.job, "rank 1")
    assert (rank["rank"], rank["count"], rank["said"]) == (1, 0, "rank 1")
    step = search(straggler.timeline, straggler.job, "step 1")
    assert step["count"] == len(straggler.job.ranks) and {hit["name"].split(" (")[0] for hit in step["hits"]} == {
        "step 1"
    }
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


def test_operators_are_found_once_they_are_read(straggler: OpenRun) -> None:
    read = straggler.timeline_of(frozenset({0}))
    lanes = [n for n, lane in enumerate(read.lanes) if lane.kind == "ops"]
    hits = search(read, straggler.job, "aten::")["hits"]
    assert any(hit["lane"] in lanes and hit["name"].startswith("aten::") for hit in hits)


def test_places_mark_closed_ranks_and_name_the_slices_of_lanes(straggler: OpenRun) -> None:
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


def test_spots_are_runs_of_touched_bins() -> None:
    start, end = np.array([0, 25, 30, 95, 200]), np.array([5, 30, 31, 120, 210])
    assert spots(start, end, 0, 100, 10) == [0, 0, 2, 3, 9, 9]
    assert spots(start[:0], end[:0], 0, 100, 10) == []
    assert spots(np.array([-(10**18)]), np.array([10**18]), -5, 5, 4) == [0, 3]
