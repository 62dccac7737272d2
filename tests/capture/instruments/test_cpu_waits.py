"""Waiting for a CPU, as the kernel counts it."""

import os
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ddprof.capture.instruments import cpu_waits
from ddprof.capture.instruments.cpu_waits import CpuContention

TICKS_NS = 20e6  # the kernel books a tick at a time


def watching() -> CpuContention:
    hub: Any = SimpleNamespace()
    waits = CpuContention(hub)
    waits.install(ModuleType("torch"))
    return waits


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Counters of the kernel that the test sets."""
    monkeypatch.setattr(cpu_waits, "_TASKS", str(tmp_path))
    return tmp_path


def count(tasks: Path, thread: int, on_cpu: int, waited: int) -> None:
    (tasks / str(thread)).mkdir(exist_ok=True)
    (tasks / str(thread) / "schedstat").write_text(f"{on_cpu} {waited} 7\n")


def test_a_thread_of_the_script_that_computes_is_named_and_its_waits_are_not_the_trainings(tasks: Path) -> None:
    waits, release = watching(), threading.Event()
    spinning = threading.Thread(target=release.wait, name="spins", daemon=True)
    spinning.start()
    try:
        me, other = threading.get_native_id(), spinning.native_id
        assert other is not None
        count(tasks, me, 0, 0)
        count(tasks, other, 0, 0)
        waits.window_opened(3, 7)
        count(tasks, me, 10_000, 300)
        count(tasks, other, 20_000, 7_000)
        waits.window_closed()
    finally:
        release.set()
        spinning.join()
    (window,) = waits.recorded()["cpu_waits"]["windows"]
    assert window["waited_ns"] == 300 and window["beside"] == [{"name": "spins", "cpu_ns": 20_000}]


def test_the_longest_wait_of_a_thread_that_computes_counts_where_the_machine_counts(tasks: Path) -> None:
    waits = watching()
    assert waits.recorded() == {"cpu_waits": None}
    waits.window_opened(3, 7)
    waits.window_closed()
    assert waits.recorded() == {"cpu_waits": None}
    me, waits = threading.get_native_id(), watching()
    count(tasks, me, 1_000, 100)
    count(tasks, me + 1, 500, 5_000)
    waits.window_opened(3, 7)
    count(tasks, me, 11_000, 400)
    count(tasks, me + 1, 9_500, 5_900)  # computes with the training thread
    count(tasks, me + 2, 10, 80_000)  # hardly runs: nobody waits for it
    waits.window_closed()
    recorded = waits.recorded()["cpu_waits"]
    (window,) = recorded["windows"]
    assert (window["cpu_ns"], window["waited_ns"]) == (10_000, 900)
    assert (recorded["run"]["cpu_ns"], recorded["run"]["waited_ns"]) == (10_000, 900)


def test_threads_listed_after_one_that_has_ended_are_counted(tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    me, waits = threading.get_native_id(), watching()
    count(tasks, me, 1_000, 100)
    monkeypatch.setattr(cpu_waits.os, "listdir", lambda _: ["7", str(me)])
    waits.window_opened(3, 7)
    count(tasks, me, 11_000, 400)
    waits.window_closed()
    assert waits.recorded()["cpu_waits"]["run"]["cpu_ns"] == 10_000


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="the kernel counts no run delay")
def test_the_real_counters_follow_what_the_process_does() -> None:
    waits = watching()
    waits.window_opened(3, 7)
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass
    waits.window_closed()
    (window,) = waits.recorded()["cpu_waits"]["windows"]
    assert 80e6 <= window["cpu_ns"] <= window["dur_ns"] + TICKS_NS
    assert window["cpu_ns"] + window["waited_ns"] <= window["dur_ns"] + 2 * TICKS_NS
