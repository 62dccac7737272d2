"""Runs a callback right after a named module has been imported, without importing it early. Standard library only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]


class ImportHook(MetaPathFinder):
    """A meta-path finder that lets others find modules, and adds a call after a module's own code has run."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Callback]] = {}

    def when_imported(self, name: str, callback: Callback) -> None:
        """Call `callback(module)` once `name` is imported, at once if it already is."""
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None)
        if module is not None and not getattr(spec, "_initializing", False):
            callback(module)
            return
        self._waiting.setdefault(name, []).append(callback)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Another finder's spec, with a loader that calls back."""
        if fullname not in self._waiting:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                self._teach(fullname, spec)
                return spec
        return None

    def _teach(self, name: str, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        if loader is None or not hasattr(loader, "exec_module"):
            return  # a namespace package: there is no code to wait for
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # The loader is per spec, so the shadowing attribute is ours to remove: the module ends as if never touched.
            del loader.exec_module
            original(module)
            for callback in self._waiting.pop(name, []):
                callback(module)
            if not self._waiting and self in sys.meta_path:
                sys.meta_path.remove(self)

        loader.exec_module = exec_module
