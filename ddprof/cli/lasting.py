"""Imports that stay until the process ends, which the garbage collector need not look through again and again."""

from __future__ import annotations

import gc
import importlib
import sys
from types import ModuleType


def import_lasting(name: str) -> ModuleType:
    """A module with all that it imports. The collector passes over it, also in processes that are forked later.

    https://docs.python.org/3/library/gc.html#gc.freeze: their pages then stay shared. Done once per module,
    since freezing also keeps what is garbage at that moment.
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
