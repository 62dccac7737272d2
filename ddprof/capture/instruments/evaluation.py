"""A model in evaluation mode: from `eval()` to `train()`, without training in between."""

from __future__ import annotations

import functools
import sys
import threading
import time
import weakref
from types import ModuleType
from typing import Any

from ddprof.capture.describe.stacks import place, script_frame
from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.window.annotate import Range

RANGE = "ddprof::evaluation"
MOST_STEPS = 1  # a model that evaluates may be what the next step is told by; one that goes on for more is trained


class EvaluationMode(Instrumentor):
    """Times the outermost model that the training thread switches, once training has begun, until it trains again: by a
    call of its own or of a wrapper's. A model never switched back (a teacher, frozen layers) does not count.
    """

    def _install(self, module: ModuleType) -> None:
        # Model, start, step, range, line.
        self._open: tuple[weakref.ref[Any], int, int, Range | None, str] | None = None
        base: Any = module.nn.Module
        original = base.train
        switched, inside = self.hub.guard.wrap(self._switched), threading.local()

        @functools.wraps(original)
        def train(model: Any, mode: bool = True) -> Any:
            if getattr(inside, "it", False):  # the modules inside a model are switched with it
                return original(model, mode)
            was, inside.it = model.training, True
            try:
                return original(model, mode)
            finally:
                inside.it = False
                switched(model, was, mode)

        self.patches.add(base, "train", train)

    def _switched(self, model: Any, was: bool, mode: bool) -> None:
        if threading.get_ident() != self.hub.observed.training_thread:
            return
        tracker = self.hub.tracker
        if was and not mode and self._open is None:
            caller = script_frame(sys._getframe(1))
            at = "" if caller is None else place(caller)
            self._open = weakref.ref(model), time.time_ns(), tracker.index, self.hub.annotator.open(RANGE), at
        elif mode and self._open is not None and getattr(self._open[0](), "training", False):
            (_, started_ns, step, opened, at), self._open = self._open, None
            if opened is not None:
                opened.close()
            if tracker.index - step <= MOST_STEPS:
                took_ns = time.time_ns() - started_ns
                self.hub.journal.evaluations.append({"start_ns": started_ns, "dur_ns": took_ns, "at": at})
        elif was and not mode and self._open is not None and tracker.index - self._open[2] > MOST_STEPS:
            self._open = None  # never switched back
            self._switched(model, was, mode)
