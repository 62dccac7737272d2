"""Nested Python frames to the stack that each moment of a thread belongs to, and whose code a frame is."""

from pathlib import Path

import kineto_text as kt
import numpy as np
import pytest
from reading import trace_of

from ddprof.readers.script.frames import Frame, frame_of, is_library, is_library_at
from ddprof.readers.script.stacks import Script, traced_modules, traced_script
from ddprof.tables import NULL

US, MS = 1_000, 1_000_000


def of(frames: list[tuple[int, int, int, str]]) -> Script:
    """The script of (track, start, end, name) in ms."""
    strings = sorted({frame[3] for frame in frames})
    track, start, end = np.array([frame[:3] for frame in frames], np.int64).reshape(-1, 3).T
    name = np.array([strings.index(frame[3]) for frame in frames], np.int64)
    return traced_script(track, start, end - start, name, strings)


def told(script: Script) -> list[tuple[int, int, int, str]]:
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
    assert told(script) == [(0, 10, 0, "main"), *inner, (40, 100, 0, "main")]
    assert script.spans["resolution_ns"].tolist() == [0] * 5
    calls = [(track, *times, "a.py(1): f") for track, *times in ((1, 5, 25), (0, 0, 10), (0, 30, 50))]
    script = of([(0, 0, 50, "a.py(1): main"), *calls])
    assert told(script) == [(0, 10, 0, "main/f"), (5, 25, 1, "f"), (10, 30, 0, "main"), (30, 50, 0, "main/f")]
    assert (len(script.stacks), len(script.frames)) == (3, 2)
    depth = 200
    script = of([(0, level, 2 * depth - level, "a.py(1): f") for level in range(depth)])
    assert (len(script.stacks), len(script.spans)) == (depth, 2 * depth - 1)


def test_frames_together_nest_touching_calls_are_one_and_modules_have_python_frames() -> None:
    names = ("a.py(1): outer", "a.py(2): inner")
    script = of([(0, *times, name) for times in ((0, 20), (20, 30)) for name in names])
    assert told(script) in ([(0, 30, 0, "outer/inner")], [(0, 30, 0, "inner/outer")])
    assert told(of([(0, 0, 9, "nn.Module: Block_0"), (0, 1, 8, "m.py(3): forward")])) == [(1, 8, 0, "forward")]
    assert not len(of([(0, 0, 9, "nn.Module: Block_0")]).spans)
    script = of([(0, 0, 100, "a.py(1): main"), (0, 10, 31, "a.py(2): first"), (0, 30, 90, "a.py(3): second")])
    calls = [(10, 30, 0, "main/first"), (30, 90, 0, "main/second")]
    assert told(script) == [(0, 10, 0, "main"), *calls, (90, 100, 0, "main")]


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
    assert told(Script(trace.script_spans, trace.script_stacks, trace.script_frames)) == [
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
    told = [(0, 10, 0), (10, 30, 1), (30, 60, 0), (60, 70, 1), (70, 100, 0)]
    assert list(zip(*spans.bounds, spans["stack"], strict=True)) == told
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
