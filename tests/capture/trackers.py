"""Trackers of both kinds, and a training loop played to them."""

from collections.abc import Callable
from time import time_ns
from typing import Any

import pytest

from ddprof.capture.files.step import BACKWARD, DATA, FORWARD, OPTIMIZER, Step
from ddprof.capture.steps.native_tracker import native_tracker
from ddprof.capture.steps.tracker import StepTracker

KINDS = ("python", "native")
Boundary = Callable[[int], bool | None]


def make(kind: str, on_boundary: Boundary, open_range: Any = None, close_range: Any = None) -> Any:
    callbacks = on_boundary, open_range or (lambda name: None), close_range or (lambda opened: None)
    tracker = StepTracker(*callbacks) if kind == "python" else native_tracker(*callbacks)
    if tracker is None:
        pytest.skip("the phase timers in C were not built: no compiler")
    return tracker


def let_the_clock_tick() -> None:
    """Return once the wall clock shows more: reads by different CPUs of a virtual machine can be equal."""
    before = time_ns()
    while time_ns() <= before:
        pass


class Recorder:
    def __init__(self, kind: str) -> None:
        self.boundaries: list[int] = []
        self.tracker = make(kind, lambda index: self.boundaries.append(index))

    @property
    def closed(self) -> list[Step]:
        return [step for step, _ in self.tracker.logged()]

    def ended(self) -> Step:
        """The step under way, ended as at the end of a job."""
        self.tracker.optimizer_stepped(99)
        assert self.tracker.finish()
        return self.closed[-1]

    def phase(self, phase: int) -> None:
        token = self.tracker.begin(phase)
        let_the_clock_tick()
        self.tracker.end(phase, token)

    def iteration(self, *, data: int = 1, micro: int = 1, optimizers: tuple[int, ...] = (1,)) -> None:
        for _ in range(data):
            self.phase(DATA)
        for optimizer in optimizers:
            for _ in range(micro):
                self.phase(FORWARD)
                self.phase(BACKWARD)
            self.phase(OPTIMIZER)
            self.tracker.optimizer_stepped(optimizer)

    def iterations(self, count: int, **shape: Any) -> None:
        for _ in range(count):
            self.iteration(**shape)
