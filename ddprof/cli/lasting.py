"""Imports for the life of the process, kept out of garbage collection."""

from __future__ import annotations

import gc
import importlib
import sys
from types import ModuleType


def import_lasting(name: str) -> ModuleType:
    """Import a module and freeze it and its imports (gc.freeze), also for processes forked later.

    Collections skip them, and forked processes share their pages (https://docs.python.org/3/library/gc.html#gc.freeze).
    Done once per module, because freezing also keeps whatever is garbage at that moment.
    """
    if name in sys.modules:
        return sys.modules[name]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
