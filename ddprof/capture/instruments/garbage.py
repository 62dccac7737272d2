"""Garbage collection pauses, by the interpreter's own callbacks."""

from __future__ import annotations

import gc
import linecache
import sys
import time
from types import FrameType, ModuleType

from ddprof.capture.describe.stacks import place
from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.steps.native_tracker import outside
from ddprof.capture.window.annotate import Range

_OURS = __name__.partition(".")[0] + "."
_MIN_PAUSE_NS = 500_000  # shorter pauses are noise of the youngest generation, thousands of them per second


class GarbageCollection(Instrumentor):
    """Keeps every pause above half a millisecond; older generations are named in the trace.

    The interpreter drops exceptions of a callback, in which the handler of a signal may run: a script that ends itself
    there would train on. Only a callback in C can pass the exception on.
    """

    def _install(self, module: ModuleType) -> None:
        self._started_ns = 0
        self._range: Range | None = None
        self._callback = outside(self.hub.guard.wrap(self._event))
        if self._callback is None:
            self.hub.journal.note("garbage collections were not recorded: ddprof runs without its extension in C")
        else:
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
            pause = {"start_ns": self._started_ns, "dur_ns": duration_ns, "generation": info["generation"]}
            at = _called_at(sys._getframe(1))
            # With automatic collection off somebody has called gc.collect().
            self.hub.journal.gc.append({**pause, "was_called": bool(at) or not gc.isenabled(), "at": at})


def _called_at(frame: FrameType | None) -> str:
    """The line that calls `gc.collect()` in the innermost frame outside ddprof; "" where that does not."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame = frame.f_back
    if frame is None or "collect(" not in linecache.getline(frame.f_code.co_filename, frame.f_lineno):
        return ""
    return place(frame)
