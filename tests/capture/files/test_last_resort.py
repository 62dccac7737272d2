"""A rank that holds the interpreter in C code is asked by a signal: faulthandler answers, or nobody does."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from runs import wait_until

from ddprof.capture.files.last_resort import answer_signal, handles
from ddprof.capture.files.layout import host_label
from ddprof.capture.launcher.hang.answers import ask_by_signal
from ddprof.slices.hangs.reading.stacks import parse_stacks

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
if sys.argv[2] != "bare":
    resort.arm(path)


def holds_the_lock() -> None:
    mutex = ctypes.create_string_buffer(128)
    print("ready", flush=True)  # from in here: who asks at once finds this function
    while not ctypes.PyDLL(None).pthread_mutex_lock(mutex):
        pass  # the second time it waits for itself


if sys.argv[2] in ("ends", "bare"):
    print("ready", flush=True)
    resort.disarm()
    print(path.exists(), flush=True)
    sys.stdin.read()
else:
    holds_the_lock()
"""


@contextmanager
def child(folder: Path, mode: str) -> Iterator[tuple[Any, str, Path]]:
    """A process that does what its mode says, the name of rank 0, which it is, and the file of its threads."""
    line = [sys.executable, "-c", PROGRAM, str(folder), mode, str(folder / "own.txt"), host_label()]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        name = f"rank0.{host_label()}.{process.pid}.0"
        try:
            yield process, name, folder / f"{name}.threads.txt"
        finally:
            process.kill()


def test_the_stack_of_a_thread_that_keeps_the_lock_is_written(tmp_path: Path) -> None:
    with child(tmp_path, "holds") as (process, name, path):
        assert ask_by_signal(tmp_path, [name]) == [name]
        wait_until(lambda: "<module>" in path.read_text())  # its writer has finished
        frames = parse_stacks(path.read_text()).frames
        assert [frame.function for frame in frames] == ["holds_the_lock", "<module>"]
        assert process.poll() is None


def test_a_handler_of_the_script_stays(tmp_path: Path) -> None:
    with child(tmp_path, "registered") as (process, name, path):
        assert not path.exists() and ask_by_signal(tmp_path, [name]) == []
        os.kill(process.pid, NUMBER)
        wait_until(lambda: "holds_the_lock" in (tmp_path / "own.txt").read_text())


@pytest.mark.parametrize("mode", ["ends", "bare"])
def test_a_process_without_a_handler_is_left_alone_and_a_signal_too_late_is_nothing(tmp_path: Path, mode: str) -> None:
    with child(tmp_path, mode) as (process, name, path):
        assert process.stdout.readline() == "False\n" and not handles(process.pid, NUMBER)
        path.touch()
        assert ask_by_signal(tmp_path, [name, "no name of ours"]) == []
        if mode == "ends":
            os.kill(process.pid, NUMBER)
        process.communicate("")
        assert process.returncode == 0
