"""What an instrumentor is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import ModuleType
from typing import TYPE_CHECKING

from ddprof.capture.patch import PatchSet

if TYPE_CHECKING:
    from ddprof.capture.session import Session


class Instrumentor(ABC):
    """Watches one concern. `module` is the module whose import makes it installable."""

    module = "torch"

    def __init__(self, session: Session) -> None:
        self.session = session
        self.patches = PatchSet()
        self.installed = False

    def install(self, module: ModuleType) -> None:
        """Put the hooks in place. Idempotent."""
        if not self.installed:
            self.installed = True
            self._install(module)

    def uninstall(self) -> None:
        """Take them away again. Idempotent."""
        if self.installed:
            self.installed = False
            self.patches.clear()
            self._uninstall()

    @abstractmethod
    def _install(self, module: ModuleType) -> None:
        """Do it, once."""

    def _uninstall(self) -> None:  # noqa: B027 - most need nothing beyond their patches
        """Undo what `patches` does not cover."""
