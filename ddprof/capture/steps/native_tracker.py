"""The phase timers in C (`native/phases.c`), and a callback possible only in C, where the package was built with a
compiler.

With the timers a step spends half as long in ddprof (benchmarks/README.md). `DDPROF_NATIVE=0` leaves both out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ddprof.capture.files.step import Step
from ddprof.capture.native import native_module
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
    """A `tracker.StepTracker` in C; None where it was not built or is not wanted."""
    native = native_module(_MODULE)
    if native is None:
        return None
    tracker: NativeStepTracker = native.StepTracker(on_boundary, open_range, close_range, in_main_thread, Step)
    return tracker


def outside(function: Callable[..., object]) -> Callable[..., object] | None:
    """Wrap `function` for a caller that drops exceptions: one raised by a signal handler inside, on this thread, is
    re-raised in the next code to run. None where the C extension is missing or disabled, as Python cannot do it.
    """
    hand_on: Callable[..., Any] = getattr(
        native_module(_MODULE), "outside", lambda _: None
    )  # one that was built before lacks it
    callback: Callable[..., object] | None = hand_on(function)
    return callback
