"""Where a step begins and ends, and how long its phases took, seen from the training thread.

A step begins at the first batch fetched after an optimizer step. Steps that fetch no batch (synthetic data, a loader
we cannot see)
begin at the first root forward after every optimizer in use has stepped. So gradient accumulation, several optimizers
and steps that a
GradScaler skips count once each (reference/capture.md §2).
"""

from __future__ import annotations

import threading
from _thread import get_ident  # by name: one look-up on the step path instead of two
from collections.abc import Callable
from time import time_ns
from typing import NamedTuple

from ddprof.capture.annotate import Annotator, Range

DATA, FORWARD, BACKWARD, OPTIMIZER, COLLECTIVE = range(5)
PHASE_NAMES = ("data", "forward", "backward", "optimizer", "collective")
_RANGES = tuple(f"ddprof::{name}" for name in PHASE_NAMES)
_NOTHING_SPENT = [0] * len(PHASE_NAMES)
_make = tuple.__new__  # NamedTuple's own constructor is a Python function around it
Token = int | tuple[int, Range | None]  # a phase's start in unix ns, with its range while somebody listens


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
    starts after it. `profiled` says whether a trace window covers the open step. Phases are named in the trace where
    `annotator` listens.

    Everything here runs several times per step with cold caches, where each function entered costs more than what it
    does: few functions, plain attributes.
    """

    def __init__(self, on_boundary: BoundaryHandler, annotator: Annotator) -> None:
        self._on_boundary = on_boundary
        self._annotator = annotator
        self.profiled = False
        self.thread: int | None = None
        self.index = 0
        self.start_ns = 0
        self.last_end_ns = 0
        self._depth = [0] * len(PHASE_NAMES)
        self._spent_ns = [0] * len(PHASE_NAMES)
        self._stepped: set[int] = set()
        self._known: set[int] = set()
        self._fetched = False
        self._forwarded = False

    def begin(self, phase: int, name: str | None = None) -> Token:
        """Enter a phase (DATA, ...). Returns what `end` takes: 0 where it is not counted (another thread, nested in
        itself). `name` is the range's, if it is not the phase's."""
        if get_ident() != self.thread and not self._adopt(get_ident(), phase):
            return 0
        depth = self._depth
        nested = depth[phase]
        depth[phase] = nested + 1
        if nested:
            return 0
        if phase == FORWARD and depth[BACKWARD]:
            return 0  # recomputation of a checkpointed block is part of backward
        now = time_ns()
        if not depth[OPTIMIZER]:  # no step begins inside a closure (LBFGS, Lightning)
            if not self.start_ns:
                self.start_ns = now
            if phase == DATA:
                if self._stepped:
                    now = self._boundary(now)
                self._fetched = True
            elif phase == FORWARD:
                if self._stepped and not self._fetched and self._stepped >= self._known:
                    now = self._boundary(now)
                self._forwarded = True
        if self._annotator.listening:
            return now, self._annotator.open(name or _RANGES[phase])
        return now

    def end(self, phase: int, token: Token | None) -> None:
        """Leave a phase entered by `begin`, which returned `token`; None where `begin` failed."""
        if type(token) is int:
            started_ns = token
        elif isinstance(token, tuple):
            started_ns, opened = token
            if opened is not None:
                opened.close()
        else:
            return
        depth = self._depth
        if get_ident() != self.thread or not depth[phase]:
            return
        depth[phase] -= 1
        if started_ns:
            now = time_ns()
            self.last_end_ns = now
            spent_ns = now - started_ns if now > started_ns else 0  # the wall clock may be set back
            self._spent_ns[phase] += spent_ns
            if depth[OPTIMIZER] and phase in (FORWARD, BACKWARD):
                self._spent_ns[OPTIMIZER] -= spent_ns  # the closure's own phases are not the optimizer's

    def optimizer_stepped(self, optimizer_id: int) -> None:
        """Book that an optimizer has stepped, or that its GradScaler skipped it."""
        if get_ident() != self.thread:
            return
        if optimizer_id in self._stepped:
            # It stepped twice on what was fetched once: batches no longer mark the steps, so the next forward does.
            # Where no
            # forward is seen either, this is the mark.
            self._known = set(self._stepped)
            self._fetched = False
            if not self._forwarded:
                self._boundary(time_ns())
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
        self.start_ns = 0
        self._spent_ns = _NOTHING_SPENT.copy()
        self._stepped.clear()
        self._fetched = self.profiled = False
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
        self._known, self._stepped = self._stepped, set()
        self.start_ns = now_ns
        self._spent_ns = _NOTHING_SPENT.copy()
        self._fetched = False
        if self._on_boundary(step, self.index):
            now_ns = time_ns()
            self.start_ns = now_ns
        return now_ns

    def _close(self, end_ns: int) -> Step:
        return _make(Step, (self.index, self.start_ns, end_ns, *self._spent_ns, self.profiled))
