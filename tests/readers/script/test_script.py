"""Nested frames and samples as the stacks of each moment and sums over the run, whose code it is, lines of workers."""

import json
from pathlib import Path
from typing import Any

import kineto_text as kt
import numpy as np
import pytest
from reading import trace_of, written_rank

from ddprof.model import SCRIPT_FRAMES, SCRIPT_SPANS, SCRIPT_STACKS, TRACKS
from ddprof.readers import discover, read
from ddprof.readers.script.frames import Frame, frame_of, is_library, is_library_at
from ddprof.readers.script.sampled import MOMENT_NS, SampledScript, script_frame, with_samples, worker_lines
from ddprof.readers.script.stacks import Script, traced_modules, traced_script
from ddprof.readers.side_files.stacks import read_stacks
from ddprof.tables import NULL

US, MS = 1_000, 1_000_000


def of(frames: list[tuple[int, int, int, str]]) -> Script:
    """The script of (track, start, end, name) in ms."""
    strings = sorted({frame[3] for frame in frames})
    track, start, end = np.array([frame[:3] for frame in frames], np.int64).reshape(-1, 3).T
    name = np.array([strings.index(frame[3]) for frame in frames], np.int64)
    return traced_script(track, start, end - start, name, strings)


def told_spans(script: Script) -> list[tuple[int, int, int, str]]:
    """(start, end, track, functions from outside in) of each span."""
    rows = []
    for span in script.spans.rows():
        names, stack = [], NULL if span["stack"] is None else span["stack"]
        while stack != NULL:
            names.append(script.frames["function"][script.stacks["frame"][stack]])
            stack = int(script.stacks["outer"][stack])
        rows.append((span["start_ns"], span["end_ns"], span["track"], "/".join(reversed(names))))
    return rows


def test_each_moment_belongs_to_the_innermost_frame_of_its_thread_however_deep() -> None:
    script = of([(0, 0, 100, "a.py(1): main"), (0, 10, 40, "a.py(9): load"), (0, 20, 30, "b.py(3): read")])
    inner = [(10, 20, 0, "main/load"), (20, 30, 0, "main/load/read"), (30, 40, 0, "main/load")]
    assert told_spans(script) == [(0, 10, 0, "main"), *inner, (40, 100, 0, "main")]
    assert script.spans["resolution_ns"].tolist() == [0] * 5
    calls = [(track, *times, "a.py(1): f") for track, *times in ((1, 5, 25), (0, 0, 10), (0, 30, 50))]
    script = of([(0, 0, 50, "a.py(1): main"), *calls])
    assert told_spans(script) == [(0, 10, 0, "main/f"), (5, 25, 1, "f"), (10, 30, 0, "main"), (30, 50, 0, "main/f")]
    assert (len(script.stacks), len(script.frames)) == (3, 2)
    depth = 200
    script = of([(0, level, 2 * depth - level, "a.py(1): f") for level in range(depth)])
    assert (len(script.stacks), len(script.spans)) == (depth, 2 * depth - 1)


def test_frames_together_nest_touching_calls_are_one_and_modules_have_python_frames() -> None:
    script = of([(0, *times, name) for times in ((0, 20), (20, 30)) for name in ("a.py(1): outer", "a.py(2): inner")])
    assert told_spans(script) in ([(0, 30, 0, "outer/inner")], [(0, 30, 0, "inner/outer")])
    assert told_spans(of([(0, 0, 9, "nn.Module: Block_0"), (0, 1, 8, "m.py(3): forward")])) == [(1, 8, 0, "forward")]
    assert not len(of([(0, 0, 9, "nn.Module: Block_0")]).spans)
    script = of([(0, 0, 100, "a.py(1): main"), (0, 10, 31, "a.py(2): first"), (0, 30, 90, "a.py(3): second")])
    calls = [(10, 30, 0, "main/first"), (30, 90, 0, "main/second")]
    assert told_spans(script) == [(0, 10, 0, "main"), *calls, (90, 100, 0, "main")]


def test_whatever_the_frames_the_spans_of_a_thread_do_not_overlap() -> None:
    draw = np.random.default_rng(3)
    for _ in range(50):
        start, length = draw.integers(0, 60, 30), draw.integers(1, 40, 30)
        names = [f"a.py({n % 7 + 1}): f{n % 7}" for n in range(30)]
        rows = enumerate(zip(start.tolist(), length.tolist(), names, strict=True))
        frames = [(n % 2, s, s + d, name) for n, (s, d, name) in rows]
        spans = of(frames).spans
        for track in (0, 1):
            own = spans.take(spans["track"] == track)
            assert (own["end_ns"] > own["start_ns"]).all() and (own["start_ns"][1:] >= own["end_ns"][:-1]).all()
            covered = {t for at, s, e, _ in frames if at == track for t in range(s, e)}
            assert {t for s, e in zip(*own.bounds, strict=True) for t in range(s, e)} == covered


@pytest.mark.usefixtures("decoding")
def test_a_trace_with_stacks_has_them_beside_its_events(tmp_path: Path) -> None:
    frames = [("train.py(3): main", 0, 3 * MS), ("Python GC", 10, 50), ("train.py(40): short", 100, 99 * US)]
    frames.append(("train.py(88): save", 2 * MS, 300 * US))
    events = [*(kt.span(*frame, "python_function") for frame in frames), kt.span("aten::mm", 20, 5)]
    trace = trace_of(tmp_path / "t.json", events)
    assert [trace.strings[name] for name in trace.events["name"]] == ["Python GC", "aten::mm"]
    assert told_spans(Script(trace.script_spans, trace.script_stacks, trace.script_frames)) == [
        (0, 2 * MS, 0, "main"), (2 * MS, 2300 * US, 0, "main/save"), (2300 * US, 3 * MS, 0, "main")
    ]  # fmt: skip
    assert trace.script_frames["is_user"].tolist() == [True, True]
    tid = trace.tracks["tid"][trace.script_spans["track"]]
    assert tid.tolist() == [str(trace.tracks["tid"][trace.events["track"][0]])] * 3


def test_calls_of_modules_are_stacks_of_their_own() -> None:
    names = ["nn.Module: Gpt_0", "nn.Module: Linear_1", "a.py(1): forward"]
    number, start, end = np.array([0, 1, 2, 1]), np.array([0, 10, 12, 60]), np.array([100, 30, 20, 70])
    spans, stacks = traced_modules(np.zeros(4, np.int64), start, end - start, number, names)
    assert stacks["name"].tolist() == ["Gpt_0", "Linear_1"] and stacks["outer"].tolist() == [NULL, 0]
    told_spans = [(0, 10, 0), (10, 30, 1), (30, 60, 0), (60, 70, 1), (70, 100, 0)]
    assert list(zip(*spans.bounds, spans["stack"], strict=True)) == told_spans
    assert len(traced_modules(np.zeros(1, np.int64), start[:1], end[:1], number[2:3], names).spans) == 0


def test_a_frame_has_file_line_and_function() -> None:
    assert frame_of("project/train.py(88): evaluate") == Frame("project/train.py", 88, "evaluate", True)
    assert frame_of("odd (1)/a.py(7): <module>") == Frame("odd (1)/a.py", 7, "<module>", True)
    # What is not written in Python has no line, and no address.
    built_in = "<built-in method append of list object"
    assert frame_of(f"{built_in} at 0x7cc1201ee000>") == Frame("", NULL, f"{built_in}>", False)


LIBRARIES = ("torch/nn/modules/module.py", "threading.py", "PIL/Image.py", "/usr/lib/python3.12/json/decoder.py")
LIBRARIES += ("/opt/conda/lib/python3.11/site-packages/unheard_of/core.py", "datasets/iterable_dataset.py")
LIBRARIES += ("C:\\venv\\Lib\\site-packages\\unheard_of\\core.py", "/usr/local/bin/torchrun")
LIBRARIES += ("<frozen runpy>", "<string>", f"/tmp/torchinductor_me/ov/cov{'a' * 49}.py", f"/cache/z7/cz7{'b' * 49}.py")
OWN = ("train.py", "src/torch_utils.py", "/home/me/job/data.py", "my_transformers/model.py", "datasets/coco.py")


@pytest.mark.parametrize("file", [*LIBRARIES, *OWN, "ab/cab.py", "profile.py"])
def test_libraries_launchers_and_python_itself_are_not_the_users(file: str) -> None:
    assert is_library(file) == (file in LIBRARIES)


LYING = {"/usr/lib/python3.12/sched.py": "sched.py", "<frozen runpy>": "<frozen runpy>"}
LYING["/home/me/src/transformers/trainer.py"] = "transformers/trainer.py"
IN_A_JOB = {f"/home/me/job/{short}": short for short in ("sched.py", "queue/worker.py", "train.py")}


@pytest.mark.parametrize(("file", "short"), [*LYING.items(), *IN_A_JOB.items()])
def test_a_library_is_told_by_where_it_lies_or_by_its_name(file: str, short: str) -> None:
    assert is_library_at(file, short) == (file in LYING)


NOTHING = Script(SCRIPT_SPANS.empty(), SCRIPT_STACKS.empty(), SCRIPT_FRAMES.empty())
TID = 77
TRACK_ROWS = {"pid": ["5", "5"], "tid": ["70", str(TID)], "name": ["", ""], "device": [NULL] * 2, "stream": [NULL] * 2}
SITE = "/env/lib/python3.11/site-packages"
FRAMES = [["", "...", 0], ["/job/train.py", "main", 9], ["/job/train.py", "evaluate", 20]]
FRAMES += [[f"{SITE}/torch/nn/modules/module.py", "_call_impl", 1500]]
FRAMES += [[f"{SITE}/ddprof/capture/instruments/forward.py", "forward", 3], [f"{SITE}/unheard_of/of.py", "work", 3]]
FRAMES += [["/src/ddprof/untrusted/secrets.py", "masked", 3], ["<frozen importlib>", "load", 3]]
FRAMES += [["/job/up/../data/sets.py", "__getitem__", 3]]
STACKS = [[-1, 0], [-1, 1], [1, 2], [1, 3], [3, 4], [1, 5], [1, 6], [1, 7], [1, 8]]


def side_file(samples: list[list[int]] = [], **more: Any) -> str:  # noqa: B006
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


def test_what_runs_in_a_job_of_ddprof_in_a_checkout_is_no_users() -> None:
    for below in ("capture/guard.py", "untrusted/secrets.py"):
        frame = script_frame((f"/src/ddprof/{below}", "guarded", 3), ["/job"])
        assert (frame.file, frame.is_user) == (f"ddprof/{below}", False)


def test_frames_are_written_as_in_traces_and_spans_never_overlap(tmp_path: Path) -> None:
    frames = tables(tmp_path, side_file()).frames
    is_user = {str(file): bool(user) for file, user in zip(frames["file"], frames["is_user"], strict=True)}
    others = ("torch/nn/modules/module.py", "ddprof/capture/instruments/forward.py", "ddprof/untrusted/secrets.py")
    others += ("unheard_of/of.py", "<frozen importlib>")
    assert is_user == {"train.py": True, "data/sets.py": True, **dict.fromkeys(others, False)}
    assert frames["function"][frames["is_generator"]].tolist() == ["evaluate"]
    samples = [[0, 900, 880, 0, 1, 1], [0, 100, 0, 0, 1, 2], [30, 0, 0, 0, 1, 1], [40, 100, 0, 0, 1, 2]]
    start, end = tables(tmp_path, side_file(samples)).spans.bounds
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
    script = tables(tmp_path, side_file(samples))
    assert spans(script) == found and set(script.spans["track"].tolist()) == {1}
    assert script.spans["resolution_ns"].tolist() == [100] * len(found)


def test_sums_over_the_run(tmp_path: Path) -> None:
    script = tables(tmp_path, side_file(), side_file(worker=3))
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
    script = tables(tmp_path, side_file([[0, 100, 0, 0, 1, 1]]), traced=Script(SCRIPT_SPANS.table(own), stacks, frames))
    assert spans(script) == [(1, 2, "f")] and len(script.totals) and (script.totals["stack"] >= 1).all()
    assert str(script.frames["function"][script.stacks["frame"][script.totals["stack"][0]]]) == "main"


@pytest.mark.parametrize("tid", [TID, 99])
def test_samples_come_with_the_trace_of_their_rank(tmp_path: Path, tid: int) -> None:
    """Without an event of the thread there is no track to put spans on; the sums are there all the same."""
    events = [kt.span("ProfilerStep#1", ts_ns, 9_000, "user_annotation", 5, tid) for ts_ns in (0, 9_000)]
    stem = tmp_path / "rank0.h.5.0"
    written_rank(stem, 0, 1, events, base_ns=10_000)
    Path(f"{stem}.stacks.jsonl").write_text(side_file([[0, 100, 0, 0, 1, 2], [10**9, 100, 0, 0, 1, 2]]))
    ((_, (source,)),) = discover([str(tmp_path)]).runs
    trace = read(source)
    assert (len(trace.script_totals), len(trace.script_spans)) == (len(STACKS), int(tid == TID))


@pytest.mark.parametrize(("step_ns", "length_ns"), [(None, 4000), (12_000, 4000), (11_999, 2 * MOMENT_NS)])
def test_a_sample_far_from_others_stands_for_its_moment(tmp_path: Path, step_ns: int | None, length_ns: int) -> None:
    side = side_file([[0, 100, 0, 0, 1, 1]]).replace('"period_ns": 100,', '"period_ns": 4000,')
    script = tables(tmp_path, side, step_ns=step_ns)
    assert [end - start for start, end, _ in spans(script)] == [length_ns] and len(script.totals) == len(STACKS)


LIB = "/usr/lib/python3.11"
FETCH = "/env/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py"
NO_CALL = (None, None)
COUNTS = [[[stack, 0, 0, 3, 300, 0], [3, 0, 0, 1, 100, 0], [4, 0, 0, 5, 500, 0]] for stack in (2, 5)]


def process(tmp_path: Path, inner: list[str | int] | None, source: str | None, worker: int = 0) -> Any:
    """A worker that was seen 3 times in the line and once in another; 5 times it waited for something to do."""
    frames = [["", "...", 0], [FETCH, "fetch", 54], ["/job/data.py", "__getitem__", 10], ["/job/data.py", "other", 30]]
    frames += [[f"{LIB}/multiprocessing/connection.py", "wait", 947], inner or ["", "...", 0]]
    stacks = [[-1, 0], [-1, 1], [1, 2], [1, 3], [-1, 4], [2, 5]]
    tables = {"frames": frames, "sources": [None, None, source, "return 1", None, None], "stacks": stacks}
    lines: list[dict[str, Any]] = [{"kind": "begin", "worker": worker, "phases": ["rest"], "path": ["/job"]}]
    lines += [{"kind": kind, "from": 0, kind: rows} for kind, rows in tables.items()]
    lines.append({"kind": "counts", "counts": COUNTS[inner is not None]})
    path = tmp_path / f"rank0.worker{worker}.1.stacks.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (process,), notes = read_stacks([str(path)])
    assert notes == []
    return process


@pytest.mark.parametrize(
    ("inner", "source", "told"),
    [
        (None, "fcntl.flock(f, fcntl.LOCK_EX)", ("flock", "lock")),
        *((None, line, ("acquire", "lock")) for line in ("self.gate.acquire()", "with self.lock:")),
        (None, 'con.execute("BEGIN EXCLUSIVE")', ("execute", "lock")),
        (None, 'cursor.execute("select x from t where i = 3 for update")', ("execute", "lock")),
        (None, "got += c.recv(512 - len(got))", ("recv", "network")),
        (None, 'self.db.execute("select 1").fetchone()', ("execute", "database")),
        *((None, line, NO_CALL) for line in ("with open(path) as f: return f.read()", "self.flocks = 3", None)),
        ([f"{LIB}/multiprocessing/synchronize.py", "__enter__", 95], "with self.gate:", ("acquire", "lock")),
        ([f"{LIB}/socket.py", "readinto", 700], "return self.client.get(key)", ("readinto", "network")),
        ([f"{LIB}/json/decoder.py", "decode", 3], "self.flock(x)", NO_CALL),
    ],
)
def test_the_call_is_told_by_a_library_or_by_the_line(tmp_path: Path, inner: Any, source: Any, told: Any) -> None:
    lines = worker_lines([process(tmp_path, inner, source)])
    rows = [(line.line, line.function, line.samples, line.share, line.call, line.kind) for line in lines]
    assert rows == [(10, "__getitem__", 3, 0.75, *told), (30, "other", 1, 0.25, *NO_CALL)]
    assert lines[0].file == "data.py"


def test_workers_of_a_rank_are_one_sum_and_the_rank_itself_is_none(tmp_path: Path) -> None:
    both = [process(tmp_path, None, "x.acquire()", worker) for worker in (0, 1)]
    assert [(line.samples, line.share) for line in worker_lines(both)] == [(6, 0.75), (2, 0.25)]
    both[0].worker = None
    assert worker_lines(both)[0].samples == 3 and worker_lines([]) == ()
