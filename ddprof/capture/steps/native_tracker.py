"""The phase timers in C (`native/phases.c`), where the package was built with a compiler.

With them a step spends half as long in ddprof (benchmarks/README.md). `DDPROF_NATIVE=0` leaves them out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from ddprof.capture.files.step import Step
from ddprof.capture.steps.tracker import in_main_thread
from ddprof.capture.window.annotate import Range

if TYPE_CHECKING:
    from ddprof.capture.steps._phases import StepTracker as NativeStepTracker

_MODULE = f"{__package__}._phases"  # a job knows this package by another name (capture/shim/sitecustomize.py)


def native_tracker(
    on_boundary: Callable[[int], bool | None],
    open_range: Callable[[str], Range | None],
    close_range: Callable[[Range], object],
) -> NativeStepTracker | None:
    """A `tracker.StepTracker` in C; None where it was not built or is not wanted.

    Also None in a Python without the GIL: the extension relies on it, and importing it would switch the GIL on.
    """
    has_gil: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    if os.environ.get("DDPROF_NATIVE", "1") == "0" or not has_gil():
        return None
    try:
        make = import_module(_MODULE).StepTracker
    except ImportError:
        return None  # not built, or on a machine of another kind: the folder of the package may be shared
    tracker: NativeStepTracker = make(on_boundary, open_range, close_range, in_main_thread, Step)
    return tracker
