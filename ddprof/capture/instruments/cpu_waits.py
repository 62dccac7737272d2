"""Time in which the rank was ready to run but had no CPU because the machine was busy.

The kernel counts it for each thread (Linux, CONFIG_SCHED_INFO: /proc/self/task/*/schedstat, "run delay"). The counters
are read as a window opens and closes and when the sidecar is written, at no other time. So is, from the first window to
the end, what this process and the whole machine spent on the CPUs that it may use: it tells whose threads took them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from ddprof.capture.instruments.base import Instrumentor

_TASKS, _MACHINE = "/proc/self/task", "/proc/stat"
_RUNNING = (0, 1, 2, 5, 6, 7)  # columns of a CPU's line there: user, nice, system, irq, softirq, steal; man 5 proc_stat
_OWN_TICKS = slice(11, 13)  # utime and stime behind the name in /proc/<pid>/stat
_MAX_THREADS = 256
_MAX_WINDOWS = 64
_AS_BUSY = 0.5  # of the training thread's CPU time: a thread that computes with it, and which it waits for
_OURS = "ddprof-"
_MAX_CHARACTERS = 100  # of a thread's name, as capture/stacks/totals.py
Counters = dict[int, tuple[int, int]]  # native thread id -> (ns on a CPU, ns waiting for one)


class CpuContention(Instrumentor):
    """Waiting for a CPU in each window, and from the first window to the end."""

    def _install(self, module: ModuleType) -> None:
        self._windows: list[dict[str, Any]] = []
        self._first: tuple[int, Counters] | None = None
        self._opened: tuple[int, Counters] | None = None
        self._spent: tuple[int, int] | None = None
        self._trains = 0

    def window_opened(self, first_step: int, last_step: int) -> None:
        """Read the counters."""
        self._trains = threading.get_native_id()
        self._opened = _now()
        if self._first is None:
            self._first, self._spent = self._opened, _spent_ns()

    def window_closed(self) -> None:
        """Read them again."""
        if self._opened is not None and len(self._windows) < _MAX_WINDOWS:
            self._windows.append(_since(self._opened, self._trains))
        self._opened = None

    def recorded(self) -> dict[str, Any]:
        """`cpu_waits` of the sidecar; null where the kernel does not count, or no window has opened."""
        if self._first is None or not self._first[1]:
            return {"cpu_waits": None}
        run, spent = _since(self._first, self._trains), _spent_ns()
        if self._spent is not None and spent is not None:
            run |= {"process_ns": spent[0] - self._spent[0], "machine_ns": spent[1] - self._spent[1]}
        return {"cpu_waits": {"windows": self._windows, "run": run}}


def _now() -> tuple[int, Counters]:
    """The time, and the counters of this process's threads; none where the kernel does not count."""
    counters: Counters = {}
    with suppress(OSError):  # no Linux
        for name in os.listdir(_TASKS)[:_MAX_THREADS]:
            with suppress(OSError, ValueError):  # this thread has ended meanwhile, or there are no such counters
                on_cpu, waited, *_ = Path(f"{_TASKS}/{name}/schedstat").read_bytes().split()
                counters[int(name)] = int(on_cpu), int(waited)
    return time.monotonic_ns(), counters


def _spent_ns() -> tuple[int, int] | None:
    """CPU time, ns: of this process and its children (a loader's workers), and of all on the CPUs that it may use; None
    where the kernel does not tell."""
    try:
        tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
        usable = {b"cpu%d" % number for number in os.sched_getaffinity(0)}
        lines = (line.split() for line in Path(_MACHINE).read_bytes().splitlines() if line.startswith(b"cpu"))
        machine = sum(int(ticks[at]) for name, *ticks in lines if name in usable for at in _RUNNING)
        children = b" ".join(file.read_bytes() for file in Path(_TASKS).glob("*/children")).split()
    except (OSError, AttributeError, ValueError, IndexError):
        return None
    ended = os.times()
    spent_ns = time.process_time_ns() + int((ended.children_user + ended.children_system) * 1e9)
    for child in children[:_MAX_THREADS]:
        with suppress(OSError, ValueError):  # it has ended meanwhile
            stat = Path(f"/proc/{int(child)}/stat").read_bytes().rpartition(b")")[2].split()
            spent_ns += sum(map(int, stat[_OWN_TICKS])) * tick_ns
    return spent_ns, machine * tick_ns


def _since(before: tuple[int, Counters], trains: int) -> dict[str, Any]:
    """Elapsed wall time, CPU time of the training thread, the longest wait for a CPU among it and the threads that
    compute with it, and threads of the script that compute; ns.

    Libraries start the threads that compute with it. Operators do not wait for threads of the script, whose spinning
    would pass for a busy machine.
    """
    now, later = _now()
    spent = {
        thread: (on_cpu - before[1].get(thread, (0, 0))[0], waited - before[1].get(thread, (0, 0))[1])
        for thread, (on_cpu, waited) in later.items()
    }
    training = spent.get(trains, (0, 0))
    names = {number: name for number, name in _of_script() if number != trains}
    busy = {thread: times for thread, times in spent.items() if times[0] >= _AS_BUSY * training[0] > 0}
    waits = [waited for thread, (_, waited) in busy.items() if thread not in names]
    beside = [{"name": names[thread], "cpu_ns": on_cpu} for thread, (on_cpu, _) in busy.items() if thread in names]
    return {"dur_ns": now - before[0], "cpu_ns": training[0], "waited_ns": max([training[1], *waits]), "beside": beside}


def _of_script() -> Iterator[tuple[int, str]]:
    """Kernel number and name of each thread that Python started, except ours."""
    for thread in list(threading._active.values()):  # type: ignore[attr-defined]  # enumerate() takes a lock
        number = getattr(thread, "native_id", None)
        is_ours = thread.name.startswith(_OURS)
        if number is not None and not is_ours and not isinstance(thread, threading._DummyThread):
            yield number, thread.name[:_MAX_CHARACTERS]
