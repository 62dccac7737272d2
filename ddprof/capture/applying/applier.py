"""Base of appliers, which call an object's constructor with the values of fixes."""

from __future__ import annotations

import functools
import inspect
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ddprof.capture.applying.construction import ConstructorCall, first_that_works
from ddprof.capture.applying.outcomes import Outcomes
from ddprof.capture.describe.origin import script_line
from ddprof.capture.instruments.base import Instrumentor
from ddprof.settings.wanted import WantedFix

if TYPE_CHECKING:
    from ddprof.capture.hub import Hub

Values = Mapping[str, Any]
Place = Mapping[str, Any] | None  # the line of the script that makes an object, as `script_line` tells it
Refusal = tuple[str, str]  # the setting that cannot be, and why


_OURS = "_ddprof_applies"


class CreationWatcher(Instrumentor):
    """Watches calls that create objects of one kind, `target`, for the fixes that are meant for it."""

    target = ""

    def __init__(self, hub: Hub, outcomes: Outcomes) -> None:
        super().__init__(hub)
        self.outcomes = outcomes
        self._within = threading.local()  # what a watched constructor makes of its kind is part of it

    def _meant(self) -> tuple[list[WantedFix], Place] | None:
        place = script_line()
        fixes = self.outcomes.meant_for(self.target, place)
        return (fixes, place) if fixes else None


class Applier(CreationWatcher):
    """Changes calls that create objects of one kind, `target`."""

    def watch(self, owner: Any, name: str) -> Callable[..., Any]:
        """Change calls of `owner.name`, but not those by its names in other modules. Returns the replacement."""
        original: Callable[..., Any] = getattr(owner, name)
        if getattr(original, _OURS, False):
            return original
        signature = inspect.signature(original)
        guard = self.outcomes.guard
        find, prepare = guard.wrap(self._meant), guard.wrap(self._prepared)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._within, "construction", False):
                return original(*args, **kwargs)
            self._within.construction = True
            try:
                meant = find()
                if not meant:
                    return original(*args, **kwargs)
                # Not under the guard: iterators of the script's run here, and their errors are its own.
                call, restore = self.preserved(ConstructorCall(signature, args, kwargs))
                prepared = prepare(call, meant, restore)
                return original(*call.args, **call.kwargs) if prepared is None else prepared.made_by(original)
            finally:
                self._within.construction = False

        setattr(replacement, _OURS, True)
        self.patches.add(owner, name, replacement)
        return replacement

    def _prepared(
        self, call: ConstructorCall, meant: tuple[list[WantedFix], Place], restore: Callable[[], object]
    ) -> Prepared | None:
        fixes, place = meant
        arguments = call.arguments()
        if arguments is None:
            return None
        chosen, values = self._agreed(call, arguments, fixes, place)
        if not chosen:
            return None
        before = {name: self.present(arguments, name) for fix in chosen for name in fix.values}

        def failed(error: Exception) -> None:
            restore()
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}; made as the script has it"
            for fix in chosen:
                self.outcomes.refused(fix, self.target, place, reason)

        def worked() -> None:
            for fix in chosen:
                self.outcomes.applied(fix, self.target, place, before)

        guard = self.outcomes.guard
        around = self.around({name: value for fix in chosen for name, value in fix.values.items()})
        return Prepared(call.with_values(values), call, around, guard.wrap(failed), guard.wrap(worked))

    def _agreed(
        self, call: ConstructorCall, arguments: Values, fixes: list[WantedFix], place: Place
    ) -> tuple[list[WantedFix], Values]:
        """The fixes that can be applied together, whole, and the arguments that they set; the others are refused."""
        chosen = list(fixes)
        while chosen:
            wanted = {name: value for fix in chosen for name, value in fix.values.items()}
            refusal = self.refusal(call, arguments, wanted)
            if refusal is None:
                return chosen, self.arguments_for(arguments, wanted)
            name, why = refusal
            for fix in [fix for fix in chosen if name in fix.values]:
                chosen.remove(fix)
                reason = why if len(fix.values) == 1 else f"{name}: {why}"
                self.outcomes.refused(fix, self.target, place, reason)
        return [], {}

    @abstractmethod
    def refusal(self, call: ConstructorCall, arguments: Values, wanted: Values) -> Refusal | None:
        """The reason why the first impossible one of the wanted settings cannot be applied; None where all can."""

    def arguments_for(self, arguments: Values, wanted: Values) -> Values:
        """The constructor's arguments for the settings, usually of the same names."""
        return wanted

    def around(self, wanted: Values) -> AbstractContextManager[object]:
        """Context of the changed call, for settings that the constructor reads elsewhere."""
        return nullcontext()

    def present(self, arguments: Values, name: str) -> Any:
        """The value of a setting in the script's call."""
        return arguments.get(name)

    def preserved(self, call: ConstructorCall) -> tuple[ConstructorCall, Callable[[], object]]:
        """The call in a repeatable form, and a function that undoes the first call's effect on its arguments."""
        return call, _nothing


class Prepared:
    """A call to be made with other arguments."""

    def __init__(
        self,
        changed: ConstructorCall,
        original: ConstructorCall,
        around: AbstractContextManager[object],
        failed: Callable[[Exception], object],
        worked: Callable[[], object],
    ) -> None:
        self._changed, self._original, self._around = changed, original, around
        self._failed, self._worked = failed, worked

    def made_by(self, function: Callable[..., Any]) -> Any:
        """The result of the call."""
        errors: list[Exception] = []

        def failed(error: Exception) -> None:
            errors.append(error)
            self._failed(error)

        result = first_that_works(function, self._changed, self._original, failed, self._around)
        if not errors:
            self._worked()
        return result


def lacking(call: ConstructorCall, wanted: Values) -> Refusal | None:
    """The first setting that the constructor has no argument for."""
    for name in wanted:
        if not call.takes(name):
            return name, "this version or class has no such argument"
    return None


def _nothing() -> None:
    return None
