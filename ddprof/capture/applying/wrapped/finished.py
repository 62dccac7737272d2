"""What appliers share that change an object once its constructor, or the function that wraps it, has made it."""

from __future__ import annotations

import functools
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ddprof.capture.applying.outcomes import Outcomes
from ddprof.capture.describe.origin import script_line
from ddprof.capture.instruments.base import Instrumentor
from ddprof.settings.wanted import WantedFix

if TYPE_CHECKING:
    from ddprof.capture.applying.applier import Place
    from ddprof.capture.hub import Hub


class FinishedObjectApplier(Instrumentor):
    """Is told of each object that `watch` sees made, with the fixes for it."""

    target = ""

    def __init__(self, hub: Hub, outcomes: Outcomes) -> None:
        super().__init__(hub)
        self.outcomes = outcomes
        self._within = threading.local()  # units that a wrapper makes inside itself are part of it

    def watch(self, owner: Any, name: str) -> None:
        """See what calls of `owner.name` make from now on: their first argument where it is a constructor, else what
        they return. A name under which another module has it too is left alone."""
        original: Callable[..., Any] = getattr(owner, name)
        mark = f"_ddprof_finishes_{self.target}"
        if getattr(original, mark, False):
            return
        find, made = self.outcomes.guard.wrap(self._meant), self.outcomes.guard.wrap(self._made)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._within, "construction", False):
                return original(*args, **kwargs)
            self._within.construction = True
            try:
                meant = find()
                result = original(*args, **kwargs)
                if meant:
                    made(args[0] if name == "__init__" else result, *meant)
                return result
            finally:
                self._within.construction = False

        setattr(replacement, mark, True)
        self.patches.add(owner, name, replacement)

    def _meant(self) -> tuple[list[WantedFix], Place] | None:
        place = script_line()
        fixes = self.outcomes.meant_for(self.target, place)
        return (fixes, place) if fixes else None

    def _made(self, made: Any, fixes: Sequence[WantedFix], place: Place) -> None:
        for thing in made if isinstance(made, list) else [made]:
            self.made(thing, fixes, place)

    @abstractmethod
    def made(self, thing: Any, fixes: Sequence[WantedFix], place: Place) -> None:
        """An object has been made; under the guard."""


class FirstBackward:
    """Calls what waits as the next backward pass of the script begins: by then a model is whole and has run, and no
    gradient has been exchanged."""

    def __init__(self, applier: Instrumentor, run: Callable[[], object]) -> None:
        self.waiting = False
        self._applier, self._run = applier, run

    def install(self, torch: ModuleType) -> None:
        """Put the hook in place; the applier's patches take it away."""
        source: Any = torch
        original, is_compiling, run = source.autograd.backward, source.compiler.is_compiling, self._run

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> None:
            if self.waiting and not is_compiling():
                self.waiting = False
                run()
            original(*args, **kwargs)

        self._applier.patches.add(source.autograd, "backward", backward)
