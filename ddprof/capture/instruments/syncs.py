"""Calls that make the host wait for the device (`.item()`, `.cpu()`, `float(tensor)`, ...), with their lines of the
script.

Only while a window is open, and only for tensors on an accelerator: on a CPU-only rank nothing is waited for.
"""

from __future__ import annotations

import sys
import time
from types import ModuleType
from typing import Any

from ddprof.capture.describe.stacks import is_library
from ddprof.capture.instruments.base import Instrumentor, PatchSet

_METHODS = ("item", "tolist", "cpu", "numpy", "nonzero", "__bool__", "__float__", "__int__")
_MAX_LINES = 256


class HostSyncs(Instrumentor):
    """Watches while a window is open; outside windows torch.Tensor is untouched."""

    def _install(self, module: ModuleType) -> None:
        self._torch: Any = module
        self._armed = PatchSet()
        self._book = self.hub.guard.wrap(self._booked)

    def _uninstall(self) -> None:
        self._armed.clear()

    def window_opened(self, first_step: int, last_step: int) -> None:
        """Start watching; nothing to do on machines without an accelerator."""
        tensor, cuda = self._torch.Tensor, self._torch.cuda
        if self._armed or not (cuda.is_available() and cuda.is_initialized()):
            return
        for name in _METHODS:
            self._armed.add(tensor, name, self._timed(getattr(tensor, name), name, of_tensor=True))
        for owner, label in (
            (cuda, "synchronize"),
            (cuda.Stream, "Stream.synchronize"),
            (cuda.Event, "Event.synchronize"),
        ):
            self._armed.add(owner, "synchronize", self._timed(owner.synchronize, label, of_tensor=False))

    def window_closed(self) -> None:
        """Restore torch.Tensor."""
        self._armed.clear()

    def _timed(self, original: Any, name: str, of_tensor: bool) -> Any:
        is_compiling = self._torch.compiler.is_compiling
        book = self._book

        def synchronising(*args: Any, **kwargs: Any) -> Any:
            if of_tensor and (is_compiling() or args[0].device.type == "cpu"):
                return original(*args, **kwargs)
            started_ns = time.perf_counter_ns()
            try:
                return original(*args, **kwargs)
            finally:
                book(name, time.perf_counter_ns() - started_ns, sys._getframe(1))

        return synchronising

    def _booked(self, name: str, duration_ns: int, frame: Any) -> None:
        code = _script_frame(frame)
        line = f"{code.f_code.co_filename}:{code.f_lineno}" if code is not None else "?"
        syncs = self.hub.journal.syncs
        if (line, name) not in syncs and len(syncs) >= _MAX_LINES:
            return
        total = syncs.setdefault((line, name), [0, 0])
        total[0] += 1
        total[1] += duration_ns


def _script_frame(frame: Any) -> Any:
    """The innermost frame of the script; if only libraries are on the stack, the innermost outside torch."""
    outside = None
    while frame is not None:
        name = frame.f_code.co_filename
        if "/torch/" not in name:
            outside = outside or frame
            if not is_library(name):
                return frame
        frame = frame.f_back
    return outside
