"""What is run as a wrapped model is called, changed in place.

`Module.__call__` runs `_compiled_call_impl` where there is one, as `Module.compile` sets it: names of parameters, hooks
and checkpoints of the model stay as they are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ddprof.capture.applying.outcomes import Outcomes
from ddprof.capture.applying.wrapped.finished import FinishedObjectApplier
from ddprof.settings.wanted import WantedFix

if TYPE_CHECKING:
    from ddprof.capture.applying.applier import Place
    from ddprof.capture.hub import Hub

NEVER_CALLED = "no call of the model was seen"
Tell = Callable[[str], object]  # why a setting is not in force for a model; "" where it is


class ChangedCall:
    """Stays in this process: a pickle or a deep copy of the module has none."""

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


class ModelCallApplier(FinishedObjectApplier):
    """Changes how DDP, FSDP or the units of fully_shard are called. One instance for each module that has one."""

    never = NEVER_CALLED

    def __init__(self, hub: Hub, outcomes: Outcomes, module: str, owner: str, name: str) -> None:
        super().__init__(hub, outcomes)
        self.module, self._owner, self._name = module, owner, name

    def _install(self, module: ModuleType) -> None:
        self.watch(getattr(module, self._owner) if self._owner else module, self._name)

    def made(self, thing: Any, fixes: Sequence[WantedFix], place: Place) -> None:
        """A wrapper or a unit exists; the units inside it were made before it."""
        fix = fixes[-1]  # the one for its own line
        why = self.refusal(thing) if hasattr(type(thing), "_compiled_call_impl") else "this torch has no way to do it"
        if why:
            self.outcomes.refused(fix, self.target, place, why)
            return
        self.outcomes.awaited(fix, self.never)
        said: set[str] = set()

        def tell(why: str) -> None:
            if why not in said:
                said.add(why)
                if why:
                    self.outcomes.refused(fix, self.target, place, why)
                else:
                    self.outcomes.applied(fix, self.target, place, {})

        self.change(thing, self.outcomes.guard.wrap(tell))

    @abstractmethod
    def refusal(self, thing: Any) -> str:
        """Why it cannot be called so; "" where it can."""

    @abstractmethod
    def change(self, thing: Any, tell: Tell) -> None:
        """Do it; `tell` is to be called as the model is."""


def call_of(module: Any) -> Any:
    """What replaces the call of a module; None where nothing does."""
    return vars(module).get("_compiled_call_impl")


def set_call(module: Any, call: Any) -> None:
    """Replace it."""
    module._compiled_call_impl = call
