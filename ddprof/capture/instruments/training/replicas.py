"""What ranks hold that are meant to hold the same: a checksum of every parameter and buffer after a trace window.

Between two steps, after the window's trace has been written, when the profiler has waited for the device anyway. No
collective: the checksums of the ranks are compared by the analysis.
"""

from __future__ import annotations

import functools
import time
import weakref
from types import ModuleType
from typing import Any

from ddprof.capture.describe import replicas
from ddprof.capture.describe.origin import script_line
from ddprof.capture.describe.replicas import batch_norms
from ddprof.capture.instruments.base import Instrumentor

_MAX_MODELS = 64
Line = dict[str, Any] | None


class Replicas(Instrumentor):
    """Keeps the checksums of the last window, and the line that wrapped each model in DistributedDataParallel."""

    def _install(self, module: ModuleType) -> None:
        self._taken: dict[str, Any] | None = None
        self._norms: list[dict[str, Any]] | None = None
        self._made: list[tuple[weakref.ref[Any], Line]] = []
        self._watch_wrapping(module.nn.parallel.DistributedDataParallel)

    def _watch_wrapping(self, cls: Any) -> None:
        original, made = cls.__init__, self.hub.guard.wrap_hook(self._wrapped)

        @functools.wraps(original)
        def __init__(model: Any, *args: Any, **kwargs: Any) -> None:
            original(model, *args, **kwargs)
            made(model)

        self.patches.add(cls, "__init__", __init__)

    def _wrapped(self, model: Any, _: object) -> None:
        if len(self._made) < _MAX_MODELS:
            self._made.append((weakref.ref(model), script_line()))

    def window_written(self, last_step: int) -> None:
        """Take the checksums. A model that cannot be read costs its own, and a note."""
        began_ns = time.perf_counter_ns()
        observed = self.hub.observed
        optimizers = observed.living_optimizers()
        lines = {id(model): line for reference, line in self._made if (model := reference()) is not None}
        lines.update({id(optimizer): observed.made_at(optimizer) for optimizer in optimizers})
        models = [*observed.models(), *self._never_called()]
        found = self.hub.guard.attempt("checksums", lambda: replicas.checksums(models, optimizers, lines))
        if found is not None:
            self._taken = {"step": last_step, "took_ns": time.perf_counter_ns() - began_ns, "models": found}
        self._norms = self.hub.guard.attempt("batch norm", lambda: batch_norms(models))

    def _never_called(self) -> list[tuple[str, Any]]:
        """Wrapped models of which only the module inside is called: their gradients are not averaged."""
        called = {id(model) for _, model in self.hub.observed.models()}
        made = [model for reference, _ in self._made if (model := reference()) is not None]
        return [("ddp", model) for model in made if id(model) not in called]

    def recorded(self) -> dict[str, Any]:
        """`replicas` and `batch_norms`: null before the first window was written."""
        return {"replicas": getattr(self, "_taken", None), "batch_norms": getattr(self, "_norms", None)}
