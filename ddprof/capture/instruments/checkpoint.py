"""Saving and loading state: `torch.save`, `torch.load` and torch.distributed.checkpoint.

One save is one pause, with all its inner saves (torch.distributed.checkpoint writes each tensor by `torch.save`, from
its own threads) and the files that a framework writes in sequence (model, optimizer, scheduler).
"""

from __future__ import annotations

import functools
import threading
import time
from types import ModuleType
from typing import Any

from ddprof.capture.files.step import DATA
from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.window.annotate import Range

_SAVES = {"save", "async_save", "save_state_dict"}


class _Nesting(threading.local):
    """Number of saves and loads under way in this thread, whatever their functions."""

    depth = 0


_nesting = _Nesting()


class _Saving(Instrumentor):
    """Times some functions of one module, outermost calls only."""

    names: tuple[str, ...] = ()
    label = ""

    def _install(self, module: ModuleType) -> None:
        self._before = self.hub.guard.wrap(self._enter)
        self._after = self.hub.guard.wrap(self._leave)
        for name in self.names:
            original = getattr(module, name, None)
            if original is not None:
                self.patches.add(module, name, self._timed(original, name))

    def _timed(self, original: Any, name: str) -> Any:
        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            token = self._before()
            try:
                return original(*args, **kwargs)
            finally:
                self._after(name, token)

        return timed

    def _enter(self) -> tuple[int, Range | None]:
        _nesting.depth += 1
        outermost = _nesting.depth == 1 and self._holds_up_training()
        return time.time_ns(), self.hub.annotator.open("ddprof::checkpoint") if outermost else None

    def _leave(self, name: str, token: tuple[int, Range | None] | None) -> None:
        _nesting.depth -= 1
        if token is None or _nesting.depth or not self._holds_up_training():
            return
        started_ns, opened = token
        if opened is not None:
            opened.close()
        self._book(name, started_ns, time.time_ns())

    def _holds_up_training(self) -> bool:
        """True on the training thread (the main thread before the first optimizer step) outside a loader's fetch, whose
        `torch.load` of a pickled sample is the loader's time.
        """
        trains = self.hub.observed.training_thread
        if trains is None:
            is_here = threading.current_thread() is threading.main_thread()
        else:
            is_here = threading.get_ident() == trains
        return is_here and self.hub.tracker.phase != DATA

    def _book(self, name: str, started_ns: int, ended_ns: int) -> None:
        """Book a pause, or extend the last one: no training in between, and a break shorter than the writing."""
        pauses, kind = self.hub.journal.checkpoints, "save" if name in _SAVES else "load"
        if pauses and pauses[-1]["kind"] == kind:
            last = pauses[-1]
            last_end_ns = last["start_ns"] + last["dur_ns"]
            written_ns = last["dur_ns"] + ended_ns - started_ns
            if self.hub.tracker.last_end_ns <= last_end_ns and started_ns - last_end_ns <= written_ns:
                last["dur_ns"], last["calls"] = ended_ns - last["start_ns"], last["calls"] + 1
                return
        what = f"{self.label}.{name}"
        pauses.append({"start_ns": started_ns, "dur_ns": ended_ns - started_ns, "what": what, "kind": kind, "calls": 1})


class TorchSave(_Saving):
    """`torch.save` and `torch.load`."""

    names = ("save", "load")
    label = "torch"


class DistributedCheckpoint(_Saving):
    """torch.distributed.checkpoint; for `async_save` the delay of the training thread."""

    module = "torch.distributed.checkpoint"
    names = ("save", "async_save", "load", "save_state_dict", "load_state_dict")
    label = "torch.distributed.checkpoint"
