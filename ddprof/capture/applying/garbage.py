"""Garbage collection at a fixed interval: on all ranks after the same optimizer step, and at no other time."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any


class CollectionSchedule:
    """Begins with the first optimizer step: what exists then is left out of all later collections."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._steps = 0
        self._took_over = False
        self._was_off = False
        self._handle: Any = None

    def install(self) -> None:
        """Count optimizer steps, which every rank makes alike."""
        source: Any = sys.modules["torch.optim.optimizer"]
        self._handle = source.register_optimizer_step_post_hook(lambda *_: self.stepped())
        os.register_at_fork(after_in_child=self._in_child)

    def uninstall(self) -> None:
        """Leave collecting to Python again."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        self._in_child()

    def stepped(self) -> None:
        """An optimizer has stepped."""
        self._steps += 1
        if self._steps == 1:
            self._was_off = not gc.isenabled()
            if not self._was_off:
                gc.collect()
                gc.freeze()
                gc.disable()
                self._took_over = True
        elif self._took_over and self._steps % self._interval == 0:
            gc.collect()

    def why_not(self) -> str:
        """Why collections do not follow the interval; "" where they do."""
        if not self._steps:
            return "no optimizer has stepped in this process"
        if self._was_off:
            return "the script has switched garbage collection off itself"
        return "the script has switched garbage collection on again" if gc.isenabled() else ""

    def _in_child(self) -> None:
        """A forked loader worker has no optimizer: it collects as Python does."""
        if self._took_over:
            self._took_over = False
            gc.enable()
