"""A rank that holds the interpreter in C code is asked by a signal: faulthandler answers, or nobody does."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddprof.capture.files.last_resort import answer_signal, handles
from ddprof.capture.files.layout import host_label
from ddprof.capture.launcher.hang.answers import ask_by_signal
from ddprof.slices.hangs.reading.stacks import parse_stacks, training_frames

NUMBER = answer_signal() or 0
pytestmark = pytest.mark.skipif(not NUMBER, reason="no real-time signals here")

PROGRAM = """
import ctypes, faulthandler, os, signal, sys
from pathlib import Path
from ddprof.capture.files.last_resort import LastResort, answer_signal

if sys.argv[2] == "registered":
    faulthandler.register(answer_signal(), file=open(sys.argv[3], "w"))
path = Path(sys.argv[1]) / f"rank0.{sys.argv[4]}.{os.getpid()}.0.threads.txt"
resort = LastResort()
resort.arm(path)


def holds_the_lock() -> None:
    mutex = ctypes.create_string_buffer(128)
    print("ready", flush=True)  # from in here: who asks at once finds this function
    while not ctypes.PyDLL(None).pthread_mutex_lock(mutex):
        pass  # the second time it waits for itself


if sys.argv[2] == "ends":
    print("ready", flush=True)
    resort.disarm()
    print(path.exists(), flush=True)
    sys.stdin.read()
else:
    holds_the_lock()
"""


class Child:
    """A process that does what its mode says; its files are those of rank 0."""

    def __init__(self, folder: Path, mode: str) -> None:
        arguments = [str(folder), mode, str(folder / "own.txt"), host_label()]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"
        self.name = f"rank0.{host_label()}.{self.process.pid}.0"
        self.path = folder / f"{self.name}.threads.txt"

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def written(path: Path) -> str:
    """Content of the file once there is some and its writer has finished."""
    until = time.monotonic() + 300
    while time.monotonic() < until and "<module>" not in path.read_text():
        time.sleep(0.01)
    return path.read_text()


def test_the_stack_of_a_thread_that_keeps_the_lock_is_written(tmp_path: Path) -> None:
    with Child(tmp_path, "holds") as child:
        assert ask_by_signal(tmp_path, [child.name]) == [child.name]
        frames = training_frames(parse_stacks(written(child.path)))
        assert [frame.function for frame in frames] == ["holds_the_lock", "<module>"]
        assert child.process.poll() is None


def test_a_handler_of_the_script_stays(tmp_path: Path) -> None:
    with Child(tmp_path, "registered") as child:
        assert not child.path.exists() and ask_by_signal(tmp_path, [child.name]) == []
        os.kill(child.process.pid, NUMBER)
        assert "holds_the_lock" in written(tmp_path / "own.txt")


def test_a_signal_that_comes_too_late_is_nothing(tmp_path: Path) -> None:
    child = Child(tmp_path, "ends")
    assert child.process.stdout is not None
    assert child.process.stdout.readline() == "False\n" and not handles(child.process.pid, NUMBER)
    child.path.touch()
    assert ask_by_signal(tmp_path, [child.name]) == []
    os.kill(child.process.pid, NUMBER)
    child.process.communicate("")
    assert child.process.returncode == 0


def test_a_process_without_a_handler_is_left_alone(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        name = f"rank0.{host_label()}.{process.pid}.0"
        (tmp_path / f"{name}.threads.txt").touch()
        assert ask_by_signal(tmp_path, [name, "no name of ours"]) == []
        process.communicate(b"")
        assert process.returncode == 0
    finally:
        process.kill()
