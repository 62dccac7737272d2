"""Gradients that DDP exchanges in another precision: one of torch's communication hooks."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ddprof.capture.applying.outcomes import Outcomes
from ddprof.capture.applying.wrapped.finished import FinishedObjectApplier, FirstBackward
from ddprof.settings.catalogue import COMM_HOOK
from ddprof.settings.wanted import WantedFix

if TYPE_CHECKING:
    from ddprof.capture.applying.applier import Place
    from ddprof.capture.hub import Hub


class GradientCompressionApplier(FinishedObjectApplier):
    """Registers the hook as the first backward pass begins: DDP takes only one, and the script may have its own."""

    target = COMM_HOOK

    def __init__(self, hub: Hub, outcomes: Outcomes) -> None:
        super().__init__(hub, outcomes)
        self._models: list[tuple[weakref.ref[Any], Sequence[WantedFix], Place]] = []
        self._first = FirstBackward(self, outcomes.guard.wrap(self._register))

    def _install(self, module: ModuleType) -> None:
        self._first.install(module)
        self.watch(module.nn.parallel.DistributedDataParallel, "__init__")

    def made(self, thing: Any, fixes: Sequence[WantedFix], place: Place) -> None:
        """A DDP exists."""
        self._models.append((weakref.ref(thing), fixes, place))
        self._first.waiting = True
        for fix in fixes:
            self.outcomes.awaited(fix, "no backward pass has begun")

    def _register(self) -> None:
        models, self._models = self._models, []
        for reference, fixes, place in models:
            model = reference()
            if model is not None:
                why = _registered(model)
                for fix in fixes:
                    if why:
                        self.outcomes.refused(fix, self.target, place, why)
                    else:
                        self.outcomes.applied(fix, self.target, place, {})


def _registered(model: Any) -> str:
    """Register the hook. Why not, in words; "" where done."""
    if getattr(model, "_comm_hooks", None):
        return "the script registers a communication hook of its own"
    if exchanged_on_cpu(model):
        return "gradients of CPU ranks are exchanged by gloo: torch has the hook for NCCL"
    hooks = import_module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
    try:
        model.register_comm_hook(model.process_group, hooks.bf16_compress_hook)
    except (RuntimeError, TypeError, ValueError) as error:
        return " ".join(str(error).split())[:200]
    return ""


def exchanged_on_cpu(model: Any) -> bool:
    """Whether NCCL has no part in it."""
    return any(parameter.device.type == "cpu" for parameter in model.parameters())
