"""A model in evaluation mode: from `eval()` to `train()`, without training in between."""

from __future__ import annotations

import functools
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ddprof.capture.describe.observed import updates
from ddprof.capture.describe.stacks import place, script_frame
from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.window.annotate import Range

RANGE = "ddprof::evaluation"
MOST_STEPS = 1  # a model that evaluates may be what the next step is told by; one that goes on for more is trained


@dataclass
class _Open:
    """An evaluation that has begun. `at`: the line of the script that switched the model."""

    model: weakref.ref[Any]
    start_ns: int
    step: int
    range: Range | None
    at: str


class EvaluationMode(Instrumentor):
    """Times the outermost model that the training thread switches, once training has begun, until it trains again: by a
    call of its own or of a wrapper's. A model never switched back (a teacher, frozen layers) does not count, but is
    recorded where it is trained like that.
    """

    def _install(self, module: ModuleType) -> None:
        self._open: _Open | None = None
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

    def recorded(self) -> dict[str, Any]:
        """`left_in_evaluation`: a model that trained before and is trained in evaluation mode since; null without."""
        return {"left_in_evaluation": self.hub.guard.attempt("evaluation mode", self._left)}

    def _left(self) -> dict[str, Any] | None:
        begun, observed = getattr(self, "_open", None), self.hub.observed
        model = None if begun is None else begun.model()
        called = [whole for _, root in observed.models() for whole in (root, getattr(root, "module", None))]
        if begun is None or model is None or model.training or not any(model is whole for whole in called):
            return None
        steps = self.hub.tracker.index - begun.step
        layers = sorted({type(layer).__name__ for layer in model.modules() if _acts_otherwise(layer)})
        if not begun.step or steps <= MOST_STEPS or not layers or not updates(observed.living_optimizers(), model):
            return None
        name = type(getattr(model, "module", model)).__name__
        return {"class": name, "at": begun.at, "step": begun.step, "steps": steps, "layers": layers}

    def _switched(self, model: Any, was: bool, mode: bool) -> None:
        if threading.get_ident() != self.hub.observed.training_thread:
            return
        tracker, begun = self.hub.tracker, self._open
        if was and not mode and begun is None:
            caller = script_frame(sys._getframe(1))
            at = "" if caller is None else place(caller)
            opened = self.hub.annotator.open(RANGE)
            self._open = _Open(weakref.ref(model), time.time_ns(), tracker.index, opened, at)
        elif mode and begun is not None and getattr(begun.model(), "training", False):
            self._open = None
            if begun.range is not None:
                begun.range.close()
            if tracker.index - begun.step <= MOST_STEPS:
                took_ns = time.time_ns() - begun.start_ns
                self.hub.journal.evaluations.append({"start_ns": begun.start_ns, "dur_ns": took_ns, "at": begun.at})
        elif was and not mode and begun is not None and tracker.index - begun.step > MOST_STEPS:
            self._open = None  # never switched back
            self._switched(model, was, mode)


def _acts_otherwise(layer: Any) -> bool:
    """True for layers of torch that compute something else in evaluation mode."""
    modules: Any = sys.modules["torch"].nn.modules
    dropout, norm = modules.dropout._DropoutNd, modules.batchnorm._NormBase
    return (isinstance(layer, dropout) and layer.p > 0) or (isinstance(layer, norm) and layer.track_running_stats)
