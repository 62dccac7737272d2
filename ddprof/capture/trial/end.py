"""Ends the script after a number of steps: on every rank between the same two steps, as `sys.exit(0)` there would.

The number is known in advance, so the ranks need not agree on anything: each has called the same collectives by then,
and none waits for another. `finally` blocks and `atexit` functions of the script run, its loaders end their workers.
"""

from __future__ import annotations

import atexit
import functools
import math
import sys
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.trial import parameters

if TYPE_CHECKING:
    from ddprof.capture.hub import Hub


class TrialEnd(Instrumentor):
    """Records what the rank holds after the last step, and raises SystemExit."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._steps = hub.config.end_after
        self._held: dict[str, Any] | None = None
        self._loss: Any = None
        self._has_ended = False

    def _install(self, module: ModuleType) -> None:
        self._watch_loss(module)
        # After the functions that the script registers, which may still need its groups.
        atexit.register(self.hub.guard.wrap(self._take_down_groups))

    def step_begins(self, number: int) -> None:
        """The step after the last one: the script ends here. Also at every later one, where it goes on all the same."""
        if number >= self._steps:
            self._end(number)

    def recorded(self) -> dict[str, Any]:
        """`trial`: what the rank held; null before."""
        return {"trial": self._held}

    def _end(self, number: int) -> NoReturn:
        if not self._has_ended:
            self._has_ended = True
            self._held = self.hub.guard.attempt("what the rank holds", lambda: self._holds(number))
        raise SystemExit(0)

    def _holds(self, number: int) -> dict[str, Any]:
        _wait_for_device()  # collectives that were only issued so far are made: no peer waits for them
        began_ns = time.perf_counter_ns()
        optimizers = self.hub.observed.living_optimizers()
        attempt = self.hub.guard.attempt
        return {
            "steps": number,
            "loss": attempt("loss", lambda: _finite(self._loss)),
            "parameters": attempt("parameters", lambda: parameters.held(optimizers)),
            "took_ns": time.perf_counter_ns() - began_ns,
        }

    def _watch_loss(self, torch: Any) -> None:
        """The last number that a backward pass began with; read only at the end."""
        original = torch.autograd.backward
        keep = self.hub.guard.wrap_hook(self._keep)

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            keep(tensors)
            original(tensors, *args, **kwargs)

        self.patches.add(torch.autograd, "backward", backward)

    def _keep(self, tensors: Any, _: object) -> None:
        first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
        if getattr(first, "numel", int)() == 1:
            self._loss = first.detach()

    def _take_down_groups(self) -> None:
        """What the end of the script would have done, had it been reached."""
        distributed = sys.modules.get("torch.distributed")
        if self._has_ended and distributed is not None and distributed.is_initialized():
            distributed.destroy_process_group()


def _finite(number: Any) -> float | None:
    value = float("nan") if number is None else float(number)
    return value if math.isfinite(value) else None


def _wait_for_device() -> None:
    torch = sys.modules["torch"]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif hasattr(torch, "accelerator") and torch.accelerator.is_available():
        torch.accelerator.synchronize()
