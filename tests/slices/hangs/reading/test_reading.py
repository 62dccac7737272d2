"""Last sampled stacks of ranks and loader workers, and lines of recorded calls, from the files of capture;
stacks as faulthandler writes them and py-spy prints them."""

import faulthandler
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hang_dumps import Job

from ddprof.slices.hangs.explain import explain
from ddprof.slices.hangs.model import Call, StackFrame
from ddprof.slices.hangs.reading.collect import has_stacks, parse_stacks, with_lines
from ddprof.slices.hangs.text import hang_document

STEM = "rank1.host.77.0"
TORCH = "/env/lib/python3.11/site-packages/torch"
T0 = 1_800_000_000_000_000_000
WAITS = [("/job/train.py", "main", 40), (f"{TORCH}/utils/data/dataloader.py", "__next__", 700)]
UTILS = f"{TORCH}/utils/data/_utils"
LOADER = [(f"{UTILS}/worker.py", "_worker_loop", 349), (f"{UTILS}/fetch.py", "fetch", 52)]
FETCHES = [*LOADER, ("/job/data.py", "__getitem__", 17)]
KILLED = [
    ("Timed out waiting 8000ms for recv operation to complete", "not_entered"),
    ("Connection closed by peer [127.0.0.1]:20712.", "killed"),
]
FAULTHANDLER = """Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait

Current thread 0x00007f0000000002 (most recent call first):
  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 2500 in {op}
  File "/home/someone/train.py", line {line} in train
  File "/home/someone/train.py", line 99 in <module>
"""
PY_SPY = """Process 4242: python train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 4242 (idle): "MainThread"
    load (train.py:31)
    <module> (train.py:99)
Thread 4250 (idle): "ddprof-control"
    wait (threading.py:320)
"""
ONE, TWO = FAULTHANDLER.format(op="all_reduce", line=10), [FAULTHANDLER.format(op=f"op{n}", line=n) for n in (10, 12)]
LATER = PY_SPY.replace("load (train.py:31)", "save (train.py:60)")
DUMPS = {
    "faulthandler lists the main thread last": (ONE, [("all_reduce", 2500), ("train", 10), ("<module>", 99)]),
    "the last of several dumps counts": ("".join(TWO), [("op12", 2500), ("train", 12)]),
    "py-spy names the main thread": (PY_SPY, [("load", 31), ("<module>", 99)]),
    "the last of several dumps by py-spy counts": (PY_SPY + LATER, [("save", 60), ("<module>", 99)]),
}


def side_file(path: Path, frames: list[tuple[str, str, int]], at_ns: int, extra: str = "") -> None:
    """A file of one stack, outermost frame first."""
    numbered = [["", "...", 0], *map(list, frames)]
    stacks = [[-1, 0], *([at - 1 if at > 1 else -1, at] for at in range(1, len(numbered)))]
    lines: list[dict[str, Any]] = [
        {"kind": "begin", "schema": "ddprof.stacks/1", "phases": []},
        {"kind": "frames", "from": 0, "frames": numbered},
        {"kind": "stacks", "from": 0, "stacks": stacks},
        {"kind": "threads", "from": 0, "threads": [["MainThread", 77]]},
        {"kind": "counts", "counts": [[len(frames), 0, 0, 9, 9, 0]], "last": [at_ns, len(frames)]},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + extra)


def sidecar(folder: Path, rank: int, **content: Any) -> None:
    """A rank that had entered collective 5 (rank 0), or only 4 of them."""
    line = {"file": "/job/train.py", "line": 50, "function": "main"}
    about = {"group": "0", "op": "all_reduce", "size": [4], "line": line}
    calls = [{**about, "number": n, "entered_ns": T0 + n * 10**9, "done": n < 5} for n in range(1, 6 - rank)]
    known = {"rank": rank, "host": "host", "world_size": 2, "calls": calls, "end": {"at_ns": T0 + 60 * 10**9}}
    (folder / f"rank{rank}.host.{76 + rank}.0.sidecar.json").write_text(json.dumps({**known, **content}))


def test_a_killed_rank_was_last_where_it_was_sampled_last(tmp_path: Path) -> None:
    sidecar(tmp_path, 0, state="signal")
    sidecar(tmp_path, 1, state="killed")
    frames, stacks = [("/job/train.py", "main", 40), ("/job/data.py", "augment", 9)], tmp_path / f"{STEM}.stacks.jsonl"
    side_file(stacks, frames, T0 + 9 * 10**9)
    hang = explain([str(tmp_path)])
    assert hang.kind == "killed" and "last seen at data.py:9 in augment()" in hang.sentence
    side_file(stacks, frames[1:], T0 + 10**9)  # a later call tells more
    assert "last seen at train.py:50 in main()" in explain([str(tmp_path)]).sentence


@pytest.mark.parametrize(("message", "kind"), KILLED)
def test_a_rank_that_the_launcher_killed_as_it_did_not_end_is_no_cause(tmp_path: Path, message: str, kind: str) -> None:
    """A rank that hangs in C code does not answer SIGTERM. Whether it died first is told by what its peers say."""
    sidecar(tmp_path, 0, end={"at_ns": T0 + 60 * 10**9, "error": {"type": "RuntimeError", "message": message}})
    sidecar(tmp_path, 1, state="killed")
    side_file(tmp_path / f"{STEM}.stacks.jsonl", [("/job/train.py", "main", 40)], T0 + 9 * 10**9)
    hang = explain([str(tmp_path)])
    assert (hang.kind, hang.ranks) == (kind, (1,)), hang.sentence
    assert "at train.py:40 in main()" in hang.sentence


def test_calls_of_a_killed_rank_are_laid_beside_a_record_by_the_groups_own_numbers(tmp_path: Path) -> None:
    """Gloo aborts a rank that is sent more than it asked for, and the recorder with it."""
    (job := Job(2, "2.13", "gloo")).call("all_reduce", size=(900,), state="started")
    job.write(tmp_path, as_json=True, ranks=[0])
    line = {"file": "/job/train.py", "line": 23, "function": "accuracy"}
    call = {"group": "0", "op": "all_reduce", "number": 1, "sequence": 1, "size": [], "dtype": "torch.float32"}
    sidecar(tmp_path, 0, state="signal", calls=[])
    sidecar(tmp_path, 1, state="killed", calls=[{**call, "entered_ns": T0, "line": line}], end=None)
    said = "rank 0 calls all_reduce of [900] (train.py:10 in train()); rank 1 calls all_reduce of a scalar"
    assert said in explain([str(tmp_path)]).sentence


@pytest.mark.parametrize(("told", "answered", "kind"), [(1, 1, "not_entered"), (0, 1, "not_entered"), (1, 0, "killed")])
def test_ranks_that_answered_in_a_hang_died_after_it(tmp_path: Path, told: int, answered: int, kind: str) -> None:
    for rank in (0, 1):
        sidecar(tmp_path, rank, state="killed", end=None)
        if answered:
            where = tmp_path / f"rank{rank}.host.{76 + rank}.0.where.json"
            where.write_text(json.dumps({"rank": rank, "at_ns": T0 + 60 * 10**9}))
    (tmp_path / "manifest.json").write_text(json.dumps({"exit_code": 1, "hang": {"kind": "x"} if told else None}))
    assert explain([str(tmp_path)]).kind == kind


def test_the_loader_worker_that_hangs_is_named_with_its_line(tmp_path: Path) -> None:
    sidecar(tmp_path, 0, state="signal")
    frames = [{"file": file, "line": line, "function": function} for file, function, line in reversed(WAITS)]
    sidecar(tmp_path, 1, state="signal", end={"at_ns": T0 + 60 * 10**9, "frames": frames})
    side_file(tmp_path / f"{STEM}.worker0.90.stacks.jsonl", [LOADER[0], ("/env/lib/queue.py", "get", 1)], T0)
    side_file(tmp_path / f"{STEM}.worker1.91.stacks.jsonl", LOADER, T0)  # of the epoch before
    side_file(tmp_path / f"{STEM}.worker1.92.stacks.jsonl", FETCHES, T0 + 1, extra='{"kind": "counts"}\nhalf a li')
    hang = explain([str(tmp_path)])
    assert hang.kind == "not_entered" and hang.ranks == (1,)
    waits = "it is at train.py:40 in main() and waits for its loader, whose worker 1 is at data.py:17 in __getitem__()"
    assert waits in hang.sentence
    line = {"file": "/job/data.py", "line": 17, "function": "__getitem__", "source": None}
    assert [row["loader_workers"] for row in hang_document(hang)["per_rank"]] == [[], [{"worker": 1, "line": line}]]


def test_stacks_that_a_signal_made_count_where_they_are_newer_than_the_answer(tmp_path: Path) -> None:
    sidecar(tmp_path, 0, state="running", end=None)
    sidecar(tmp_path, 1, state="running", end=None, calls=[])
    frame = {"file": "/job/train.py", "line": 12, "function": "before"}
    (tmp_path / f"{STEM}.where.json").write_text(json.dumps({"rank": 1, "at_ns": T0 + 20 * 10**9, "frames": [frame]}))
    dump = tmp_path / f"{STEM}.threads.txt"
    dump.write_text('Current thread 0x1 (most recent call first):\n  File "/job/train.py", line 33 in holds\n')
    for seconds, line in ((30, "train.py:33 in holds()"), (10, "train.py:12 in before()")):
        os.utime(dump, ns=(T0 + seconds * 10**9,) * 2)
        hang = explain([str(tmp_path)])
        assert hang.rows[1].frame is not None and f":{hang.rows[1].frame.line} in" in line, hang
    dump.write_text("")  # nothing was written
    assert explain([str(tmp_path)]).rows[1].frame is not None


def own(entered_ns: int, left_ns: int | None, line: int, group: str = "0", peer: int | None = None) -> Call:
    times = {"entered_ns": entered_ns, "left_ns": left_ns}
    return Call(group, 1, "x", left_ns is not None, peer=peer, frames=(StackFrame("train.py", line),), **times)


def recorded(entered_ns: int, group: str = "0", frames: tuple[StackFrame, ...] = ()) -> Call:
    return Call(group, 1, "all_reduce", False, entered_ns=entered_ns, frames=frames)


def lines(calls: list[Call], log: list[Call]) -> list[int | None]:
    return [call.frames[0].line if call.frames else None for call in with_lines(calls, log)]


def test_a_call_has_the_line_of_the_one_it_lies_in_unless_its_own_stack_was_recorded() -> None:
    log = [own(100, 200, 10), own(300, 400, 11), own(500, None, 12), own(310, 390, 99, peer=1)]
    assert lines([recorded(at) for at in (90, 100, 150, 250, 350, 600)], log) == [None, 10, 10, None, 11, 12]
    # Groups are apart, and a call inside another is over before it.
    log = [own(100, 900, 20), own(200, 300, 21), own(100, 900, 22, group="1")]
    assert lines([recorded(250), recorded(500), recorded(500, "1"), recorded(500, "2")], log) == [21, 20, 22, None]
    assert lines([recorded(150, frames=(StackFrame("ddp.py", 7),))], [own(100, 200, 10)]) == [7]
    ended = Call("0", 1, "x", True, entered_ns=100, frames=(StackFrame("train.py", 5),))
    assert lines([recorded(150)], [ended]) == [None]


@pytest.mark.parametrize(("text", "frames"), DUMPS.values(), ids=DUMPS)
def test_frames_of_the_training_thread(text: str, frames: list[tuple[str, int]]) -> None:
    assert [(f.function, f.line) for f in parse_stacks(text)[0]][: len(frames)] == frames


def test_what_faulthandler_writes_is_read(tmp_path: Path) -> None:
    with (tmp_path / "rank0.txt").open("w+") as file:
        faulthandler.dump_traceback(file=file, all_threads=True)
        file.seek(0)
        text = file.read()
    assert has_stacks(text)
    assert any(f.function == "test_what_faulthandler_writes_is_read" for f in parse_stacks(text)[0])


def test_stacks_alone_tell_who_is_not_inside(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        (tmp_path / f"rank{rank}.txt").write_text(ONE)
    (tmp_path / "rank2.txt").write_text(PY_SPY)
    hang = explain([str(tmp_path)])
    assert (hang.kind, hang.ranks) == ("not_entered", (2,))
    assert "train.py:31 in load()" in hang.sentence and "train.py:10" in hang.sentence
    assert not has_stacks("Thread safety\n  of everything (see below)\n")
