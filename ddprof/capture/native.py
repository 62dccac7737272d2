"""Extensions in C, which are optional."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def native_module(name: str) -> Any:
    """An extension in C; None where it is not wanted, was not built, or was built for a machine of another kind (the
    folder of the package may be shared), and in a Python without the GIL: it needs one, and its import would switch it
    on.
    """
    has_gil: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    if os.environ.get("DDPROF_NATIVE", "1") == "0" or not has_gil():
        return None
    try:
        return import_module(name)
    except ImportError:
        return None
