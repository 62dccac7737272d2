"""Appliers that change finished objects, after their constructor or wrapping function: the precision in which DDP
exchanges gradients, and units of fully_shard that gather the next ones' parameters ahead of time.
"""

from __future__ import annotations

import sys
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from ddprof.capture.applying.applier import CreationWatcher
from ddprof.capture.applying.outcomes import Outcomes, Place
from ddprof.capture.hub import Hub
from ddprof.settings.catalogue import COMM_HOOK, PREFETCHING
from ddprof.settings.wanted import WantedFix

# setting -> the method of a unit that takes the list, the attribute of its state that holds it
_LISTS = {
    "forward_prefetch_units": ("set_modules_to_forward_prefetch", "_states_to_forward_prefetch"),
    "backward_prefetch_units": ("set_modules_to_backward_prefetch", "_states_to_backward_prefetch"),
}


class FinishedObjectApplier(CreationWatcher):
    """Applier to finished objects; it receives each object that `watch` sees created, with its fixes."""

    def watch(self, owner: Any, name: str) -> None:
        """Watch objects from calls of `owner.name` from now on: a constructor's first argument, else the result."""
        find, made = self.outcomes.guard.wrap(self._meant), self.outcomes.guard.wrap(self._made)

        def make(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            meant = find()
            result = original(*args, **kwargs)
            if meant:
                made(args[0] if name == "__init__" else result, *meant)
            return result

        self._make_by(owner, name, f"_ddprof_finishes_{self.target}", make)

    def _made(self, made: Any, fixes: Sequence[WantedFix], place: Place) -> None:
        for thing in made if isinstance(made, list) else [made]:
            self.made(thing, fixes, place)

    @abstractmethod
    def made(self, thing: Any, fixes: Sequence[WantedFix], place: Place) -> None:
        """Handle a new object; called under the guard."""


class FirstBackwardApplier(FinishedObjectApplier):
    """Completes new objects at the start of the script's next backward pass: by then a model is complete and has run,
    and no gradient has been exchanged.
    """

    def __init__(self, hub: Hub, outcomes: Outcomes, module: str | None = None) -> None:
        super().__init__(hub, outcomes, module)
        self._waiting: list[tuple[weakref.ref[Any], Sequence[WantedFix], Place]] = []

    def watch_backward(self) -> None:
        """Put the hook on backward passes in place."""
        torch: Any = sys.modules["torch"]
        is_compiling, complete = torch.compiler.is_compiling, self.outcomes.guard.wrap(self.complete)

        def begins(*_: Any, **__: Any) -> None:
            if self._waiting and not is_compiling():
                waiting, self._waiting = self._waiting, []
                complete([(it, fixes, place) for made, fixes, place in waiting if (it := made()) is not None])

        self.patches.before(torch.autograd, "backward", begins)

    def made(self, thing: Any, fixes: Sequence[WantedFix], place: Place) -> None:
        """Keep it until then."""
        self._waiting.append((weakref.ref(thing), fixes, place))
        for fix in fixes:
            self.outcomes.awaited(fix, "no backward pass has begun")

    @abstractmethod
    def complete(self, held: Sequence[tuple[Any, Sequence[WantedFix], Place]]) -> None:
        """Handle the objects that are still there, with their fixes and lines; called under the guard."""


class GradientCompressionApplier(FirstBackwardApplier):
    """Registers the hook as the first backward pass starts: DDP takes only one, and the script may have its own."""

    target = COMM_HOOK

    def _install(self, module: ModuleType) -> None:
        self.watch_backward()
        self.watch(module.nn.parallel.DistributedDataParallel, "__init__")

    def complete(self, held: Sequence[tuple[Any, Sequence[WantedFix], Place]]) -> None:
        """Register the hook on each DDP."""
        for model, fixes, place in held:
            why = _registered(model)
            for fix in fixes:
                self.outcomes.tell(fix, self.target, place, why)


def _registered(model: Any) -> str:
    """Register the hook. Returns the reason of a refusal, "" where it is registered."""
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
    """True where gradients are exchanged without NCCL."""
    return any(parameter.device.type == "cpu" for parameter in model.parameters())


class PrefetchApplier(FirstBackwardApplier):
    """Gives each unit its list as the first backward pass starts: all units and the script's lists are known then."""

    target = PREFETCHING

    def _install(self, module: ModuleType) -> None:
        self.watch_backward()
        self.watch(module, "fully_shard")

    def complete(self, held: Sequence[tuple[Any, Sequence[WantedFix], Place]]) -> None:
        """Give the units of each root their lists."""
        places = {id(unit): place for unit, _, place in held}
        meant = {id(unit): _effective(fixes) for unit, fixes, _ in held}
        for root in _roots([unit for unit, _, _ in held]):
            units = [module for module in root.modules() if module is not root and id(module) in meant] or [root]
            for fix in self.outcomes.fixes:
                its = [unit for unit in units if fix in meant[id(unit)]]
                if its:
                    self._give(fix, its, places[id(its[0])])

    def _give(self, fix: WantedFix, units: Sequence[Any], place: Place) -> None:
        why = _why_not(fix, units)
        for name, count in fix.values.items() if not why else ():
            in_order = units if name == "forward_prefetch_units" else units[::-1]
            for at, unit in enumerate(in_order):
                getattr(unit, _LISTS[name][0])(list(in_order[at + 1 : at + 1 + int(count)]))
        self.outcomes.tell(fix, self.target, place, why)


def _why_not(fix: WantedFix, units: Sequence[Any]) -> str:
    if len(units) < 2:
        return "it is the only unit: none comes before or after it"
    for name in fix.values:
        method, states = _LISTS[name]
        if not hasattr(units[0], method):
            return f"{name}: this torch has no {method}"
        if any(getattr(unit._get_fsdp_state(), states, None) for unit in units):
            return f"the script calls {method} itself"
    return ""


def _effective(fixes: Sequence[WantedFix]) -> list[WantedFix]:
    """Fixes with settings that no later one replaces."""
    last = {name: fix for fix in fixes for name in fix.values}
    return [fix for fix in fixes if all(last[name] is fix for name in fix.values)]


def _roots(units: Sequence[Any]) -> list[Any]:
    """Units that no other unit contains."""
    inside = {id(module) for unit in units for module in unit.modules() if module is not unit}
    return [unit for unit in units if id(unit) not in inside]
