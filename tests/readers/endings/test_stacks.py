"""Stacks as faulthandler writes them and py-spy prints them."""

from __future__ import annotations

import faulthandler
from pathlib import Path

from ddprof.analyzers.hangs.explain import explain
from ddprof.readers.endings.stacks import has_stacks, parse_stacks, training_frames

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


def test_faulthandler_lists_the_main_thread_last() -> None:
    frames = training_frames(parse_stacks(FAULTHANDLER.format(op="all_reduce", line=10)))
    assert [(f.function, f.line) for f in frames] == [("all_reduce", 2500), ("train", 10), ("<module>", 99)]


def test_the_last_of_several_dumps_counts() -> None:
    text = FAULTHANDLER.format(op="all_reduce", line=10) + FAULTHANDLER.format(op="barrier", line=12)
    assert training_frames(parse_stacks(text))[1].line == 12


def test_py_spy_names_the_main_thread() -> None:
    frames = training_frames(parse_stacks(PY_SPY))
    assert (frames[0].file, frames[0].line, frames[0].function) == ("train.py", 31, "load")


def test_what_faulthandler_writes_is_read(tmp_path: Path) -> None:
    with (tmp_path / "rank0.txt").open("w+") as file:
        faulthandler.dump_traceback(file=file, all_threads=True)
        file.seek(0)
        text = file.read()
    assert has_stacks(text)
    assert any(f.function == "test_what_faulthandler_writes_is_read" for f in training_frames(parse_stacks(text)))


def test_stacks_alone_tell_who_is_not_inside(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        (tmp_path / f"rank{rank}.txt").write_text(FAULTHANDLER.format(op="all_reduce", line=10))
    (tmp_path / "rank2.txt").write_text(PY_SPY)
    hang = explain([str(tmp_path)])
    assert (hang.kind, hang.ranks) == ("not_entered", (2,))
    assert "train.py:31 in load()" in hang.sentence and "train.py:10" in hang.sentence


def test_ordinary_text_has_no_stacks() -> None:
    assert not has_stacks("Thread safety\n  of everything (see below)\n")
