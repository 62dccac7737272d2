"""How long the rank was ready to run and had no CPU: what a busy machine takes from it.

The kernel counts it for each thread (Linux, CONFIG_SCHED_INFO: /proc/self/task/*/schedstat, "run delay"). The counters
are read as a window opens and closes and when the sidecar is written, at no other time.
"""

from __future__ import annotations

import os
import threading
import time
from types import ModuleType
from typing import Any

from ddprof.capture.instruments.base import Instrumentor

_TASKS = "/proc/self/task"
_MAX_THREADS = 256
_MAX_WINDOWS = 64
_AS_BUSY = 0.5  # of the training thread's CPU time: a thread that computes with it, and which it waits for
Counters = dict[int, tuple[int, int]]  # native thread id -> (ns on a CPU, ns waiting for one)


class CpuContention(Instrumentor):
    """Waiting for a CPU in each window, and from the first window to the end."""

    def _install(self, module: ModuleType) -> None:
        self._windows: list[dict[str, int]] = []
        self._first: tuple[int, Counters] | None = None
        self._opened: tuple[int, Counters] | None = None
        self._trains = 0

    def window_opened(self, first_step: int, last_step: int) -> None:
        """Read the counters."""
        self._trains = threading.get_native_id()
        self._opened = _now()
        self._first = self._first or self._opened

    def window_closed(self) -> None:
        """Read them again."""
        if self._opened is not None and len(self._windows) < _MAX_WINDOWS:
            self._windows.append(_since(self._opened, self._trains))
        self._opened = None

    def recorded(self) -> dict[str, Any]:
        """`cpu_waits` of the sidecar; null where the kernel does not count, or no window has opened."""
        run = None if self._first is None or not self._first[1] else _since(self._first, self._trains)
        return {"cpu_waits": None if run is None else {"windows": self._windows, "run": run}}


def _now() -> tuple[int, Counters]:
    """The time, and the counters of this process's threads; none where the kernel does not count."""
    found: Counters = {}
    try:
        for name in os.listdir(_TASKS)[:_MAX_THREADS]:
            with open(f"{_TASKS}/{name}/schedstat", "rb") as file:
                on_cpu, waited, *_ = file.read().split()
            found[int(name)] = int(on_cpu), int(waited)
    except (OSError, ValueError):  # a thread has ended meanwhile, or there are no such counters
        pass
    return time.monotonic_ns(), found


def _since(before: tuple[int, Counters], trains: int) -> dict[str, int]:
    """What has passed: wall time, CPU time of the training thread, and how long it or a thread that computes with it
    waited for a CPU, whichever waited longest. All ns."""
    now, later = _now()
    spent = {
        thread: (on_cpu - before[1].get(thread, (0, 0))[0], waited - before[1].get(thread, (0, 0))[1])
        for thread, (on_cpu, waited) in later.items()
    }
    own = spent.get(trains, (0, 0))
    busy = [waited for on_cpu, waited in spent.values() if on_cpu >= _AS_BUSY * own[0]]
    return {"dur_ns": now - before[0], "cpu_ns": own[0], "waited_ns": max([own[1], *busy])}
