"""The phase timers in C: see `tracker` and `native/phases.c`."""

from collections.abc import Callable
from typing import Any

from ddprof.capture.files.ring import StepRing
from ddprof.capture.files.step import Step
from ddprof.capture.window.annotate import Range

class StepTracker:
    """`tracker.StepTracker`, which also guards itself: see `guard.Guard.lead`."""

    enabled: bool
    timed: bool
    spent_ns: int
    listening: bool
    profiled: bool
    disturbed: bool
    calm_until: int

    def __init__(
        self,
        on_boundary: Callable[[int], bool | None],
        open_range: Callable[[str], Range | None],
        close_range: Callable[[Range], object],
        is_main_thread: Callable[[], bool],
        make_step: Callable[..., Step],
    ) -> None: ...
    @property
    def index(self) -> int: ...
    @property
    def booked(self) -> int: ...
    def begin(self, phase: int, name: str | None = None, /) -> Any: ...
    def end(self, phase: int, token: Any, /) -> None: ...
    def optimizer_stepped(self, optimizer_id: int, /) -> None: ...
    def finish(self) -> bool: ...
    def restart(self) -> None: ...
    def write_to(self, ring: StepRing | None, /) -> None: ...
    def logged(self) -> list[tuple[Step, bool]]: ...
