"""Garbage collection pauses, by the interpreter's own callbacks."""

from __future__ import annotations

import gc
import time
from types import ModuleType

from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.window.annotate import Range

_MIN_PAUSE_NS = 500_000  # shorter pauses are noise of the youngest generation, thousands of them per second


class GarbageCollection(Instrumentor):
    """Keeps every pause above half a millisecond; older generations are named in the trace."""

    def _install(self, module: ModuleType) -> None:
        self._started_ns = 0
        self._range: Range | None = None
        self._callback = self.hub.guard.wrap(self._event)
        gc.callbacks.append(self._callback)

    def _uninstall(self) -> None:
        if self._callback in gc.callbacks:
            gc.callbacks.remove(self._callback)

    def _event(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._started_ns = time.time_ns()
            if info["generation"] > 0:
                self._range = self.hub.annotator.open("ddprof::gc")
            return
        opened, self._range = self._range, None
        if opened is not None:
            opened.close()
        duration_ns = time.time_ns() - self._started_ns
        if self._started_ns and duration_ns >= _MIN_PAUSE_NS:
            # With automatic collection off somebody has called gc.collect().
            pause = {"start_ns": self._started_ns, "dur_ns": duration_ns, "generation": info["generation"]}
            self.hub.journal.gc.append({**pause, "was_called": not gc.isenabled()})
