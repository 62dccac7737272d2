"""Saving and loading state: `torch.save`, `torch.load` and torch.distributed.checkpoint."""

from __future__ import annotations

import functools
import time
from types import ModuleType
from typing import Any

from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.window.annotate import Range


class _Saving(Instrumentor):
    """Times a set of functions of one module, the outermost call only."""

    names: tuple[str, ...] = ()
    label = ""

    def _install(self, module: ModuleType) -> None:
        self._depth = 0
        self._before = self.hub.guard.wrap(self._enter)
        self._after = self.hub.guard.wrap(self._leave)
        for name in self.names:
            original = getattr(module, name, None)
            if original is not None:
                self.patches.add(module, name, self._timed(original, f"{self.label}.{name}"))

    def _timed(self, original: Any, what: str) -> Any:
        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            token = self._before()
            try:
                return original(*args, **kwargs)
            finally:
                self._after(what, token)

        return timed

    def _enter(self) -> tuple[int, Range | None]:
        self._depth += 1
        return time.time_ns(), self.hub.annotator.open("ddprof::checkpoint") if self._depth == 1 else None

    def _leave(self, what: str, token: tuple[int, Range | None] | None) -> None:
        self._depth -= 1
        if token is None or self._depth:
            return
        started_ns, opened = token
        if opened is not None:
            opened.close()
        pause = {"start_ns": started_ns, "dur_ns": time.time_ns() - started_ns, "what": what}
        self.hub.journal.checkpoints.append(pause)


class TorchSave(_Saving):
    """`torch.save` and `torch.load`."""

    names = ("save", "load")
    label = "torch"


class DistributedCheckpoint(_Saving):
    """torch.distributed.checkpoint: for `async_save` the time is what the training thread is held up."""

    module = "torch.distributed.checkpoint"
    names = ("save", "async_save", "load", "save_state_dict", "load_state_dict")
    label = "torch.distributed.checkpoint"
