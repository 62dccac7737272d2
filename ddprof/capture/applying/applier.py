"""Base of appliers: an object's constructor is called with the values of fixes, or else as the script calls it."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from ddprof.capture.applying.outcomes import Outcomes, Place
from ddprof.capture.describe.stacks import script_line
from ddprof.capture.hub import Hub
from ddprof.capture.instruments.base import Instrumentor
from ddprof.settings.wanted import WantedFix

Values = Mapping[str, Any]
Refusal = tuple[str, str]  # the setting that cannot be, and why
_OURS = "_ddprof_applies"


class CreationWatcher(Instrumentor):
    """Watches calls that create objects of one kind, `target`, for the fixes that are meant for it."""

    target = ""

    def __init__(self, hub: Hub, outcomes: Outcomes, module: str | None = None) -> None:
        super().__init__(hub)
        self.outcomes = outcomes
        self.module = module or self.module
        self._within = threading.local()  # what a watched constructor makes of its kind is part of it

    def _meant(self) -> tuple[list[WantedFix], Place] | None:
        place = script_line()
        fixes = self.outcomes.meant_for(self.target, place)
        return (fixes, place) if fixes else None

    def _make_by(self, owner: Any, name: str, mark: str, make: Callable[[Callable[..., Any], Any, Any], Any]) -> None:
        """Have `make`, which gets the original and its arguments, answer calls of `owner.name`, but neither those by
        its names in other modules nor those inside another watched call.
        """
        original: Callable[..., Any] = getattr(owner, name)
        if getattr(original, mark, False):
            return

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._within, "construction", False):
                return original(*args, **kwargs)
            self._within.construction = True
            try:
                return make(original, args, kwargs)
            finally:
                self._within.construction = False

        setattr(replacement, mark, True)
        self.patches.add(owner, name, replacement)


class Applier(CreationWatcher):
    """Changes calls that create objects of one kind, `target`."""

    def watch(self, owner: Any, name: str) -> None:
        """Change calls of `owner.name`."""
        signature = inspect.signature(getattr(owner, name))
        guard = self.outcomes.guard
        find, prepare = guard.wrap(self._meant), guard.wrap(self._prepared)

        def make(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            meant = find()
            if not meant:
                return original(*args, **kwargs)
            # Not under the guard: iterators of the script's run here, and their errors are its own.
            call, restore = self.preserved(ConstructorCall(signature, args, kwargs))
            made_by = prepare(call, meant, restore)
            return original(*call.args, **call.kwargs) if made_by is None else made_by(original)

        self._make_by(owner, name, _OURS, make)

    def _prepared(
        self, call: ConstructorCall, meant: tuple[list[WantedFix], Place], restore: Callable[[], object]
    ) -> Callable[[Callable[..., Any]], Any] | None:
        """Function that makes the changed call of another; None where no fix can be applied to it."""
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
                self.outcomes.tell(fix, self.target, place, reason)

        def worked() -> None:
            for fix in chosen:
                self.outcomes.tell(fix, self.target, place, "", before)

        guard = self.outcomes.guard
        around = self.around({name: value for fix in chosen for name, value in fix.values.items()})
        return functools.partial(
            first_that_works,
            changed=call.with_values(values),
            original=call,
            failed=guard.wrap(failed),
            worked=guard.wrap(worked),
            around=around,
        )

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
                self.outcomes.tell(fix, self.target, place, reason)
        return [], {}

    def refusal(self, call: ConstructorCall, arguments: Values, wanted: Values) -> Refusal | None:
        """The reason why the first impossible one of the wanted settings cannot be applied; None where all can."""
        return lacking(call, self.arguments_for(arguments, wanted))

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
        return call, lambda: None


def lacking(call: ConstructorCall, wanted: Values) -> Refusal | None:
    """The first setting that the constructor has no argument for."""
    for name in wanted:
        if not call.takes(name):
            return name, "this version or class has no such argument"
    return None


@dataclass(frozen=True)
class ConstructorCall:
    """The arguments of one call, by position and by name."""

    signature: inspect.Signature
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def arguments(self) -> dict[str, Any] | None:
        """Every argument with its value, defaults included; None where the call does not fit the signature."""
        try:
            bound = self.signature.bind(*self.args, **self.kwargs)
        except TypeError:
            return None
        bound.apply_defaults()
        return dict(bound.arguments)

    def takes(self, name: str) -> bool:
        """True where the function has an argument of this name."""
        return name in self.signature.parameters

    def with_values(self, values: Mapping[str, Any]) -> ConstructorCall:
        """The call with other values, passed as the script passed them, new ones by name."""
        positions = {name: at for at, name in enumerate(self.signature.parameters)}
        args, kwargs = list(self.args), dict(self.kwargs)
        for name, value in values.items():
            if positions[name] < len(args):
                args[positions[name]] = value
            else:
                kwargs[name] = value
        return ConstructorCall(self.signature, tuple(args), kwargs)


def first_that_works(
    function: Callable[..., Any],
    changed: ConstructorCall,
    original: ConstructorCall,
    failed: Callable[[Exception], object],
    worked: Callable[[], object] = lambda: None,
    around: AbstractContextManager[object] | None = None,
) -> Any:
    """The changed call's result, made within `around`, after which `worked` is called; after a failure, which `failed`
    gets, that of the original call, with its errors.

    The one broad guard around a call of the user's beside capture's own: the arguments are ours.
    """
    try:
        with around or nullcontext():
            result = function(*changed.args, **changed.kwargs)
    except Exception as error:
        failed(error)
    else:
        worked()
        return result
    return function(*original.args, **original.kwargs)
