"""Where a step begins and ends, and how long its phases took, seen from the training thread.

A step begins at the first batch fetched after an optimizer step. Steps that fetch no batch (synthetic data, a loader
we cannot see)
begin at the first root forward after every optimizer in use has stepped. So gradient accumulation, several optimizers
and steps that a
GradScaler skips count once each (reference/capture.md §2).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

DATA, FORWARD, BACKWARD, OPTIMIZER, COLLECTIVE = range(5)
PHASE_NAMES = ("data", "forward", "backward", "optimizer", "collective")


class Step(NamedTuple):
    """One closed step.

    Unix nanoseconds. Phases include what ran inside them, but for the forward and backward of a closure.
    """

    number: int
    start_ns: int
    end_ns: int
    data_ns: int
    forward_ns: int
    backward_ns: int
    optimizer_ns: int
    collective_ns: int
    profiled: bool


BoundaryHandler = Callable[[Step | None, int], bool]


class StepTracker:
    """Phase timers of the training thread.

    `on_boundary(closed_step, next_index)` runs between two steps; it returns True if it did heavy work, so that the
    next step
    starts after it. `is_profiled()` says whether a trace window covers the open step.
    """

    def __init__(self, on_boundary: BoundaryHandler, is_profiled: Callable[[], bool]) -> None:
        self._on_boundary = on_boundary
        self._is_profiled = is_profiled
        self.thread: int | None = None
        self.index = 0
        self.start_ns = 0
        self.calls = 0  # timer pairs so far: the measure of our own time on the step path
        self.last_end_ns = 0
        self._depth = [0] * len(PHASE_NAMES)
        self._spent_ns = [0] * len(PHASE_NAMES)
        self._stepped: set[int] = set()
        self._known: set[int] = set()
        self._fetched = False
        self._forwarded = False

    def begin(self, phase: int) -> int:
        """Enter a phase. Returns its start in unix ns, 0 where it is not counted (another thread, nested in itself)."""
        thread = threading.get_ident()
        if thread != self.thread and not self._adopt(thread, phase):
            return 0
        depth = self._depth
        depth[phase] += 1
        if depth[phase] > 1:
            return 0
        if phase == FORWARD and depth[BACKWARD]:
            return 0  # recomputation of a checkpointed block is part of backward
        now = time.time_ns()
        if depth[OPTIMIZER]:
            return now  # a closure (LBFGS, Lightning): no step begins inside it
        if not self.start_ns:
            self.start_ns = now
        if phase == DATA:
            if self._stepped:
                now = self._boundary(now)
            self._fetched = True
        elif phase == FORWARD and self._stepped and not self._fetched and self._stepped >= self._known:
            now = self._boundary(now)
        if phase == FORWARD:
            self._forwarded = True
        return now

    def end(self, phase: int, started_ns: int) -> None:
        """Leave a phase entered by `begin`, which returned `started_ns`."""
        if threading.get_ident() != self.thread or not self._depth[phase]:
            return
        self._depth[phase] -= 1
        if started_ns:
            now = time.time_ns()
            self.last_end_ns = now
            spent_ns = now - started_ns if now > started_ns else 0  # the wall clock may be set back
            self._spent_ns[phase] += spent_ns
            if self._depth[OPTIMIZER] and phase in (FORWARD, BACKWARD):
                self._spent_ns[OPTIMIZER] -= spent_ns  # the closure's own phases are not the optimizer's
            self.calls += 1

    def optimizer_stepped(self, optimizer_id: int) -> None:
        """Book that an optimizer has stepped, or that its GradScaler skipped it."""
        if threading.get_ident() != self.thread:
            return
        if optimizer_id in self._stepped:
            # It stepped twice on what was fetched once: batches no longer mark the steps, so the next forward does.
            # Where no
            # forward is seen either, this is the mark.
            self._known = set(self._stepped)
            self._fetched = False
            if not self._forwarded:
                self._boundary(time.time_ns())
        self._stepped.add(optimizer_id)
        self._forwarded = False

    def finish(self) -> Step | None:
        """The last, still open step if an optimizer stepped in it, ended where its last phase ended."""
        if not self._stepped or self.last_end_ns <= self.start_ns:
            return None
        step = self._close(self.last_end_ns)
        self._stepped.clear()
        return step

    def open_step(self) -> Step:
        """The step under way as far as it went."""
        return self._close(max(self.last_end_ns, self.start_ns))

    def restart(self) -> None:
        """Forget the open step: a forked child begins its own life."""
        self._reset(0)
        self.thread = None
        self.index = 0
        self._depth = [0] * len(PHASE_NAMES)

    def _adopt(self, thread: int, phase: int) -> bool:
        """Backward and optimizer name the training thread; before the first of them the thread is not known."""
        if self.thread is None and phase in (DATA, FORWARD, BACKWARD, OPTIMIZER):
            if phase in (BACKWARD, OPTIMIZER) or threading.current_thread() is threading.main_thread():
                self.thread = thread
                return True
            return False
        if phase in (BACKWARD, OPTIMIZER) and self.index == 0 and not self._stepped:
            self.thread = thread  # the main thread only prepared; a worker thread trains
            self._depth = [0] * len(PHASE_NAMES)
            return True
        return False

    def _boundary(self, now_ns: int) -> int:
        step = self._close(now_ns)
        self.index += 1
        self._known = set(self._stepped)
        self._reset(now_ns)
        if self._on_boundary(step, self.index):
            now_ns = time.time_ns()
            self.start_ns = now_ns
        return now_ns

    def _reset(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self._spent_ns = [0] * len(PHASE_NAMES)
        self._stepped.clear()
        self._fetched = False

    def _close(self, end_ns: int) -> Step:
        data_ns, forward_ns, backward_ns, optimizer_ns, collective_ns = self._spent_ns
        return Step(
            self.index,
            self.start_ns,
            end_ns,
            data_ns,
            forward_ns,
            backward_ns,
            optimizer_ns,
            collective_ns,
            self._is_profiled(),
        )
