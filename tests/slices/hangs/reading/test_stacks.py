"""Stacks as faulthandler writes them and py-spy prints them."""

import faulthandler
from pathlib import Path

import pytest

from ddprof.slices.hangs.explain import explain
from ddprof.slices.hangs.reading.stacks import has_stacks, parse_stacks

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


@pytest.mark.parametrize(("text", "frames"), DUMPS.values(), ids=DUMPS)
def test_frames_of_the_training_thread(text: str, frames: list[tuple[str, int]]) -> None:
    assert [(f.function, f.line) for f in parse_stacks(text).frames][: len(frames)] == frames


def test_what_faulthandler_writes_is_read(tmp_path: Path) -> None:
    with (tmp_path / "rank0.txt").open("w+") as file:
        faulthandler.dump_traceback(file=file, all_threads=True)
        file.seek(0)
        text = file.read()
    assert has_stacks(text)
    assert any(f.function == "test_what_faulthandler_writes_is_read" for f in parse_stacks(text).frames)


def test_stacks_alone_tell_who_is_not_inside(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        (tmp_path / f"rank{rank}.txt").write_text(ONE)
    (tmp_path / "rank2.txt").write_text(PY_SPY)
    hang = explain([str(tmp_path)])
    assert (hang.kind, hang.ranks) == ("not_entered", (2,))
    assert "train.py:31 in load()" in hang.sentence and "train.py:10" in hang.sentence
    assert not has_stacks("Thread safety\n  of everything (see below)\n")
