"""The protocol of instrumentors, and the occasions they are notified of."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from ddprof.capture.hub import Hub

_MISSING = object()


class Instrumentor(ABC):
    """Watches one concern. `module` is the module whose import makes it installable."""

    module = "torch"

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.patches = PatchSet()
        self.installed = False

    def install(self, module: ModuleType) -> None:
        """Put the hooks in place. Idempotent."""
        if not self.installed:
            self.installed = True
            self._install(module)

    def uninstall(self) -> None:
        """Remove the hooks. Idempotent."""
        if self.installed:
            self.installed = False
            self.patches.clear()
            self._uninstall()

    @abstractmethod
    def _install(self, module: ModuleType) -> None:
        """Install the hooks, once."""

    def _uninstall(self) -> None:  # noqa: B027 - most need nothing beyond their patches
        """Undo what `patches` does not cover."""

    def window_opened(self, first_step: int, last_step: int) -> None:  # noqa: B027
        """Handle the opening of a trace window, planned to end with `last_step`."""

    def window_closed(self) -> None:  # noqa: B027
        """Handle the end of the open window, planned or early, before its trace is exported."""

    def window_written(self, last_step: int) -> None:  # noqa: B027
        """The window that ended with `last_step` has been written; the next step has not begun. Not called for a window
        that ended early, inside a step or with the process.
        """

    def step_ended(self, number: int) -> None:  # noqa: B027
        """Handle the end of step `number`: called for the first two steps and every step in a window."""

    def step_begins(self, number: int) -> None:  # noqa: B027
        """Handle the beginning of step `number`. An override is called between all steps, and may end the script by
        SystemExit: every collective of the earlier steps has been called by then.
        """

    def optimizer_stepped(self) -> bool:
        """Handle an optimizer step, on the step path. Returns whether to call it for the next one."""
        return False

    def recorded(self) -> dict[str, Any]:
        """Sidecar keys that the instrumentor fills by itself; most report to the journal."""
        return {}


class Listeners:
    """Callbacks by occasion, only of instrumentors that override them, so that unused occasions cost nothing."""

    def __init__(self, instrumentors: Sequence[Instrumentor] = ()) -> None:
        def overriding(occasion: str) -> list[Any]:
            base = getattr(Instrumentor, occasion)
            return [getattr(i, occasion) for i in instrumentors if getattr(type(i), occasion) is not base]

        self.window_opened = overriding("window_opened")
        self.window_closed = overriding("window_closed")
        self.window_written = overriding("window_written")
        self.step_ended = overriding("step_ended")
        self.step_begins = overriding("step_begins")
        self.optimizer_stepped = overriding("optimizer_stepped")


class PatchSet:
    """Attributes that are replaced, and restored together.

    An attribute that was inherited is deleted rather than left as a copy in the subclass. A later patch by others
    stays; ours below it does nothing once the guard is off.
    """

    def __init__(self) -> None:
        self._patches: list[tuple[Any, str, Any, Any]] = []  # owner, name, replacement, original

    def add(self, owner: Any, name: str, replacement: Any) -> None:
        """Put one more replacement in place of `owner.name`."""
        self._patches.append((owner, name, replacement, vars(owner).get(name, _MISSING)))
        setattr(owner, name, replacement)

    def before(self, owner: Any, name: str, look: Callable[..., object]) -> Any:
        """The replacement of `owner.name`, which has `look` see the arguments of each call before it is made."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            look(*args, **kwargs)
            return original(*args, **kwargs)

        self.add(owner, name, replacement)
        return replacement

    def clear(self) -> None:
        """Restore everything, last first. Idempotent."""
        while self._patches:
            owner, name, replacement, original = self._patches.pop()
            if vars(owner).get(name, _MISSING) is not replacement:
                continue
            if original is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

    def __bool__(self) -> bool:
        return bool(self._patches)
