"""Samples as the tables of a rank: stacks over time, sums over the run, and whose code it is."""

import json
from pathlib import Path
from typing import Any

import kineto_text as kt
import pytest
from reading import written_rank

from ddprof.model import SCRIPT_FRAMES, SCRIPT_SPANS, SCRIPT_STACKS, TRACKS
from ddprof.readers import discover, read
from ddprof.readers.script.sampled import SampledScript, with_samples
from ddprof.readers.script.stacks import Script
from ddprof.readers.side_files.stacks import read_stacks
from ddprof.tables import NULL

NOTHING = Script(SCRIPT_SPANS.empty(), SCRIPT_STACKS.empty(), SCRIPT_FRAMES.empty())
TID = 77
TRACK_ROWS = {"pid": ["5", "5"], "tid": ["70", str(TID)], "name": ["", ""], "device": [NULL] * 2, "stream": [NULL] * 2}
SITE = "/env/lib/python3.11/site-packages"
FRAMES = [["", "...", 0], ["/job/train.py", "main", 9], ["/job/train.py", "evaluate", 20]]
FRAMES += [[f"{SITE}/torch/nn/modules/module.py", "_call_impl", 1500]]
FRAMES += [[f"{SITE}/ddprof/capture/instruments/forward.py", "forward", 3], [f"{SITE}/unheard_of/of.py", "work", 3]]
FRAMES += [["/src/ddprof/capture/guard.py", "guarded", 3], ["<frozen importlib>", "load", 3]]
FRAMES += [["/job/data/sets.py", "__getitem__", 3]]
STACKS = [[-1, 0], [-1, 1], [1, 2], [1, 3], [3, 4], [1, 5], [1, 6], [1, 7], [1, 8]]


def lines(samples: list[list[int]] = [], **more: Any) -> str:  # noqa: B006
    """A side file in which every stack was counted once."""
    about = {"kind": "begin", "phases": ["data", "rest"], "path": ["/job", SITE, "/env/lib/python3.11", ""], **more}
    counts = [[stack, 1, 0, 1, 100, 0] for stack in range(1, len(STACKS))]
    listed = {"frames": FRAMES, "stacks": STACKS, "threads": [["MainThread", TID], ["feeds", 70]]}
    content = [about, *({"kind": kind, "from": 0, kind: rows} for kind, rows in listed.items())]
    content[1]["generators"] = [2, 99]
    content.append({"kind": "counts", "counts": [*counts, [2, 1, 0, 3, 300, 8], [2, 0, 1, 1, 5, 8]]})
    content.append({"kind": "samples", "at_ns": 10_000, "period_ns": 100, "samples": samples})
    return "".join(json.dumps(line) + "\n" for line in content)


def tables(tmp_path: Path, *texts: str, traced: Script = NOTHING, step_ns: int | None = None) -> SampledScript:
    """The tables of these files."""
    paths = {str(tmp_path / f"{number}.stacks.jsonl"): text for number, text in enumerate(texts)}
    for path, text in paths.items():
        Path(path).write_text(text)
    processes, notes = read_stacks(list(paths))
    assert notes == []
    return with_samples(traced, processes, TRACKS.table(TRACK_ROWS), step_ns)


def spans(script: SampledScript) -> list[tuple[int, int, str]]:
    """Start, end and innermost function of each span."""
    function = script.frames["function"][script.stacks["frame"]]
    columns = (script.spans[name].tolist() for name in ("start_ns", "end_ns", "stack"))
    return [(start, end, str(function[stack])) for start, end, stack in zip(*columns, strict=True)]


def test_frames_are_written_as_in_traces_and_spans_never_overlap(tmp_path: Path) -> None:
    frames = tables(tmp_path, lines()).frames
    is_user = {str(file): bool(user) for file, user in zip(frames["file"], frames["is_user"], strict=True)}
    others = ("torch/nn/modules/module.py", "ddprof/capture/instruments/forward.py", "ddprof/capture/guard.py")
    others += ("unheard_of/of.py", "<frozen importlib>")
    assert is_user == {"train.py": True, "data/sets.py": True, **dict.fromkeys(others, False)}
    assert frames["function"][frames["is_generator"]].tolist() == ["evaluate"]
    samples = [[0, 900, 880, 0, 1, 1], [0, 100, 0, 0, 1, 2], [30, 0, 0, 0, 1, 1], [40, 100, 0, 0, 1, 2]]
    start, end = tables(tmp_path, lines(samples)).spans.bounds
    assert (end > start).all() and (start[1:] >= end[:-1]).all()


@pytest.mark.parametrize(
    ("samples", "found"),
    [
        # Each stands for the time halfway to its neighbours.
        ([[0, 100, 0, 0, 1, 1], [90, 100, 0, 0, 1, 1], [200, 100, 0, 0, 1, 2], [300, 100, 0, 0, 1, 1]],
         [(9_950, 10_145, "main"), (10_145, 10_250, "evaluate"), (10_250, 10_350, "main")]),
        # A late answer stands for all the time until it came.
        ([[0, 100, 0, 0, 1, 1], [100, 500, 450, 0, 1, 2], [600, 100, 0, 0, 1, 1]],
         [(9_950, 10_050, "main"), (10_050, 10_575, "evaluate"), (10_575, 10_650, "main")]),
        # Time without samples belongs to nobody.
        ([[0, 100, 0, 0, 1, 1], [900, 100, 0, 0, 1, 1]], [(9_950, 10_050, "main"), (10_850, 10_950, "main")]),
    ],
)  # fmt: skip
def test_samples_are_spans(tmp_path: Path, samples: list[list[int]], found: list[tuple[int, int, str]]) -> None:
    script = tables(tmp_path, lines(samples))
    assert spans(script) == found and set(script.spans["track"].tolist()) == {1}
    assert script.spans["resolution_ns"].tolist() == [100] * len(found)


def test_sums_over_the_run(tmp_path: Path) -> None:
    script = tables(tmp_path, lines(), lines(worker=3))
    function = script.frames["function"][script.stacks["frame"]]
    rows = [row for row in script.totals.rows() if function[row["stack"]] == "evaluate"]
    told = {(row["thread"], row["phase"], row["samples"], row["time_ns"], row["late_ns"]) for row in rows}
    rest, data = ("rest", 4, 404, 8), ("data", 1, 5, 8)
    assert told == {("", *rest), ("worker 3", *rest), ("feeds", *data), ("worker 3", *data)}
    outer = script.stacks["outer"]
    assert ((outer == NULL) | (outer < range(len(outer)))).all()


def test_frames_of_the_trace_stay_and_samples_are_summed_beside_them(tmp_path: Path) -> None:
    frames = SCRIPT_FRAMES.table(
        {"file": ["a.py"], "line": [1], "function": ["f"], "is_user": [True], "is_generator": [False]}
    )
    stacks = SCRIPT_STACKS.table({"frame": [0], "outer": [NULL]})
    own = {"start_ns": [1], "end_ns": [2], "track": [0], "stack": [0], "resolution_ns": [0]}
    traced = Script(SCRIPT_SPANS.table(own), stacks, frames)
    script = tables(tmp_path, lines([[0, 100, 0, 0, 1, 1]]), traced=traced)
    assert spans(script) == [(1, 2, "f")] and len(script.totals) and (script.totals["stack"] >= 1).all()
    assert str(script.frames["function"][script.stacks["frame"][script.totals["stack"][0]]]) == "main"


@pytest.mark.parametrize("tid", [TID, 99])
def test_samples_come_with_the_trace_of_their_rank(tmp_path: Path, tid: int) -> None:
    """Without an event of the thread there is no track to put spans on; the sums are there all the same."""
    events = [kt.span("ProfilerStep#1", ts_ns, 9_000, "user_annotation", 5, tid) for ts_ns in (0, 9_000)]
    stem = tmp_path / "rank0.h.5.0"
    written_rank(stem, 0, 1, events, base_ns=10_000)
    Path(f"{stem}.stacks.jsonl").write_text(lines([[0, 100, 0, 0, 1, 2], [10**9, 100, 0, 0, 1, 2]]))
    ((_, (source,)),) = discover([str(tmp_path)]).runs
    trace = read(source)
    assert (len(trace.script_totals), len(trace.script_spans)) == (len(STACKS), int(tid == TID))


@pytest.mark.parametrize(("step_ns", "placed"), [(None, True), (300, True), (299, False)])
def test_samples_too_far_apart_are_only_summed(tmp_path: Path, step_ns: int | None, placed: bool) -> None:
    script = tables(tmp_path, lines([[0, 100, 0, 0, 1, 1]]), step_ns=step_ns)
    assert (len(script.spans) > 0) == placed and len(script.totals) == len(STACKS)
