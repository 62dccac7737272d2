"""Closed steps in bounded memory, the first and the recent ones of a run; each goes to the step ring as well."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from ddprof.capture.files.ring import StepRing
from ddprof.capture.files.step import Step

FIRST_STEPS, RECENT_STEPS = 64, 4096  # the start of a run and its recent past are both worth keeping
_WARM_STEPS = 2  # unprofiled steps left out at the start: lazy initialisation, DDP's first bucket order
_COMPARED_STEPS = 512  # the latest of each kind


class StepLog:
    """Closed steps. A `disturbed` one (beside compression, or the last) measures no overhead."""

    def __init__(self) -> None:
        self._first: list[tuple[Step, bool]] = []
        self._recent: deque[tuple[Step, bool]] = deque(maxlen=RECENT_STEPS)
        self.booked = 0
        self.ring: StepRing | None = None

    def book(self, step: Step, disturbed: bool) -> None:
        """Keep one closed step."""
        self.booked += 1
        if self.booked <= FIRST_STEPS:
            self._first.append((step, disturbed))
        else:
            self._recent.append((step, disturbed))
        if self.ring is not None:
            self.ring.write(step)

    def logged(self) -> list[tuple[Step, bool]]:
        """The steps kept, oldest first, each with whether it was disturbed."""
        return [*self._first, *self._recent]


def step_medians(logged: Sequence[tuple[Step, bool]]) -> dict[str, int | None]:
    """Median length of unprofiled and of profiled steps, ns; None without one."""
    bare_ns, profiled_ns = [], []
    after_window = False
    for step, disturbed in logged:
        if step.profiled:
            profiled_ns.append(step.end_ns - step.start_ns)
        elif not disturbed and not after_window and step.number >= _WARM_STEPS:
            bare_ns.append(step.end_ns - step.start_ns)
        after_window = step.profiled  # the step after a window still waits for peers whose export took longer
    return {"bare_step_ns": _median_ns(bare_ns), "profiled_step_ns": _median_ns(profiled_ns)}


def _median_ns(durations_ns: Sequence[int]) -> int | None:
    return int(median(durations_ns[-_COMPARED_STEPS:])) if durations_ns else None
