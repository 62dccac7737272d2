"""Optimizer steps, by torch's own global hooks; steps that a GradScaler skips count too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from types import FrameType, ModuleType
from typing import Any

from ddprof.capture.files.step import OPTIMIZER
from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.steps.tracker import Token

Hook = Callable[[Any, Any, Any], None]


class OptimizerSteps(Instrumentor):
    """Pre- and post-hooks of every optimizer, and `GradScaler.step` around them."""

    def _install(self, module: ModuleType) -> None:
        source: Any = sys.modules["torch.optim.optimizer"]
        self._stepped: set[int] = set()
        before, after = self._hooks()
        self._handles = [
            source.register_optimizer_step_pre_hook(before),
            source.register_optimizer_step_post_hook(after),
        ]
        self.patches.before(source.Optimizer, "__init__", self.hub.guard.wrap(self._made))
        scaling: Any = sys.modules["torch.amp.grad_scaler"]
        self._watch_scaler(scaling.GradScaler)

    def _uninstall(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _hooks(self) -> tuple[Hook, Hook]:
        """Functions rather than methods: fewer look-ups with cold caches.

        After a step that raises, torch calls no hook: the script may go on, so the next hook ends what it began.
        """
        hub, stepped = self.hub, self._stepped
        begin, end, begins = hub.begin, hub.end, hub.optimizer_begins
        tokens: list[Token | None] = []

        def end_raised(around: int) -> None:
            if hub.observed.training_thread in (None, get_ident()):
                under_way = _depth(sys._getframe(2)) - around  # the caller of our caller is torch
                while len(tokens) > under_way:
                    end(OPTIMIZER, tokens.pop())

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if tokens:
                end_raised(1)
            if not tokens:
                begins(id(optimizer))
            tokens.append(begin(OPTIMIZER))

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if len(tokens) > 1:
                end_raised(0)
            if tokens:
                end(OPTIMIZER, tokens.pop())
            if not tokens:  # the innermost of nested optimizers (DeepSpeed, Accelerate) is not a step of its own
                stepped.add(id(optimizer))
                hub.optimizer_stepped(optimizer)

        return before, after

    def _made(self, optimizer: Any, *_: Any, **__: Any) -> None:
        """Note a new optimizer: a job with one is not a job that trains without."""
        for steps in self.hub.unmarked:
            steps.optimizer_made()
        self.hub.observed.was_made(optimizer, "optimizer")

    def _watch_scaler(self, cls: Any) -> None:
        original = cls.step
        hub = self.hub
        before, after = hub.guard.wrap(self._scaler_before), hub.guard.wrap(self._scaler_after)

        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before(optimizer)
            try:
                return original(scaler, optimizer, *args, **kwargs)
            finally:
                after(optimizer)

        self.patches.add(cls, "step", step)

    def _scaler_before(self, optimizer: Any) -> None:
        self._stepped.discard(id(optimizer))

    def _scaler_after(self, optimizer: Any) -> None:
        if id(optimizer) not in self._stepped:
            self.hub.journal.skipped_optimizer_steps += 1
            self.hub.optimizer_stepped(optimizer)


def _depth(frame: FrameType) -> int:
    """The number of optimizer steps under way, by `frame` of torch's function that calls the hooks: each has one."""
    code, above, depth = frame.f_code, frame.f_back, 1
    while above is not None:
        depth += above.f_code is code
        above = above.f_back
    return depth
