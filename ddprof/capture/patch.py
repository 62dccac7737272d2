"""One replaced attribute, put back exactly as it was."""

from __future__ import annotations

from typing import Any

_MISSING = object()


class Patch:
    """Replaces `owner.name` while installed.

    Where the attribute was inherited, uninstalling deletes the replacement rather than leave a copy in the subclass.
    Where somebody else has patched the attribute since, their patch stays; ours below it does nothing once the guard is
    off.
    """

    def __init__(self, owner: Any, name: str, replacement: Any) -> None:
        self.owner = owner
        self.name = name
        self.replacement = replacement
        self.original: Any = _MISSING
        self.installed = False

    def install(self) -> None:
        """Put the replacement in place. Idempotent."""
        if self.installed:
            return
        self.original = vars(self.owner).get(self.name, _MISSING)
        setattr(self.owner, self.name, self.replacement)
        self.installed = True

    def uninstall(self) -> None:
        """Restore what was there before. Idempotent."""
        if not self.installed:
            return
        self.installed = False
        if vars(self.owner).get(self.name, _MISSING) is not self.replacement:
            return
        if self.original is _MISSING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.original)


class PatchSet:
    """Patches that are installed and removed together."""

    def __init__(self) -> None:
        self._patches: list[Patch] = []

    def add(self, owner: Any, name: str, replacement: Any) -> None:
        """Install one more replacement."""
        patch = Patch(owner, name, replacement)
        patch.install()
        self._patches.append(patch)

    def clear(self) -> None:
        """Restore everything, last first."""
        while self._patches:
            self._patches.pop().uninstall()

    def __bool__(self) -> bool:
        return bool(self._patches)
