"""Units of fully_shard that gather the parameters of the next ones ahead of time."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ddprof.capture.applying.outcomes import Outcomes
from ddprof.capture.applying.wrapped.finished import FinishedObjectApplier, FirstBackward
from ddprof.settings.catalogue import PREFETCHING
from ddprof.settings.wanted import WantedFix

if TYPE_CHECKING:
    from ddprof.capture.applying.applier import Place
    from ddprof.capture.hub import Hub

# setting -> the method of a unit that takes the list, the attribute of its state that holds it
_LISTS = {
    "forward_prefetch_units": ("set_modules_to_forward_prefetch", "_states_to_forward_prefetch"),
    "backward_prefetch_units": ("set_modules_to_backward_prefetch", "_states_to_backward_prefetch"),
}


class PrefetchApplier(FinishedObjectApplier):
    """Gives each unit its list as the first backward pass begins: all units are known by then, and so is whether the
    script has lists of its own."""

    target = PREFETCHING

    def __init__(self, hub: Hub, outcomes: Outcomes, module: str) -> None:
        super().__init__(hub, outcomes)
        self.module = module
        self._units: list[tuple[weakref.ref[Any], Sequence[WantedFix], Place]] = []
        self._first = FirstBackward(self, outcomes.guard.wrap(self._apply))

    def _install(self, module: ModuleType) -> None:
        self._first.install(sys.modules["torch"])
        self.watch(module, "fully_shard")

    def made(self, thing: Any, fixes: Sequence[WantedFix], place: Place) -> None:
        """A unit exists."""
        self._units.append((weakref.ref(thing), fixes, place))
        self._first.waiting = True
        for fix in fixes:
            self.outcomes.awaited(fix, "no backward pass has begun")

    def _apply(self) -> None:
        held = [(unit, fixes, place) for reference, fixes, place in self._units if (unit := reference()) is not None]
        self._units = []
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
        if why:
            self.outcomes.refused(fix, self.target, place, why)
            return
        for name, count in fix.values.items():
            in_order = units if name == "forward_prefetch_units" else units[::-1]
            for at, unit in enumerate(in_order):
                getattr(unit, _LISTS[name][0])(list(in_order[at + 1 : at + 1 + int(count)]))
        self.outcomes.applied(fix, self.target, place, {})


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
    """Those of which no setting is replaced by a later one."""
    last = {name: fix for fix in fixes for name in fix.values}
    return [fix for fix in fixes if all(last[name] is fix for name in fix.values)]


def _roots(units: Sequence[Any]) -> list[Any]:
    """Those that no other unit contains."""
    inside = {id(module) for unit in units for module in unit.modules() if module is not unit}
    return [unit for unit in units if id(unit) not in inside]
