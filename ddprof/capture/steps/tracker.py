"""Step timers: bounds of steps and times of phases, seen from the training thread. The first and the recent steps of a
run are kept; each goes to the step ring as well.

A step begins at the first batch fetched after an optimizer step. Steps that fetch no batch (synthetic data, a loader we
cannot see) begin at the first root forward after every optimizer in use has stepped. So gradient accumulation, several
optimizers and steps that a GradScaler skips count once each.

`native/phases.c` is the same in C: a change here is a change there;
tests/capture/steps/test_native_tracker.py plays both.
"""

from __future__ import annotations

import os
import threading
from _thread import get_ident  # by name: one look-up on the step path instead of two
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import median
from time import time_ns
from typing import Any

from ddprof.capture.files.ring import StepRing
from ddprof.capture.files.step import BACKWARD, COLLECTIVE, DATA, FORWARD, OPTIMIZER, PHASE_NAMES, REST, Step
from ddprof.capture.window.annotate import Range

_RANGES = tuple(f"ddprof::{name}" for name in PHASE_NAMES)
_INNERMOST_FIRST = (COLLECTIVE, DATA, BACKWARD, FORWARD, OPTIMIZER)  # an optimizer's closure holds the others
GONE = 0  # in place of the id of an optimizer that has stepped and is no more
FIRST_STEPS, RECENT_STEPS = 64, 4096  # the start of a run and its recent past are both worth keeping
_WARM_STEPS = 2  # unprofiled steps left out at the start: lazy initialisation, DDP's first bucket order
_COMPARED_STEPS = 512  # the latest of each kind
_SCHEDULED = "/proc/thread-self/schedstat"  # Linux: ns on a CPU, ns ready to run without one, turns
Token = bool | Range  # whether a phase is counted, or its range while somebody listens (then it is)


def in_main_thread() -> bool:
    """True where the caller runs in the main thread."""
    return get_ident() == threading.main_thread().ident


class StepTracker:
    """Phase timers of the training thread.

    `on_boundary(next_index)` runs between two steps, from step `calm_until` on. It returns True if it did heavy work;
    the next step then starts after it. It sets `profiled` (a trace window covers the open step), `disturbed` (our own
    work runs beside it) and `listening` (`open_range` begins a named range for each phase, `close_range` ends it).
    """

    def __init__(
        self,
        on_boundary: Callable[[int], bool | None],
        open_range: Callable[[str], Range | None],
        close_range: Callable[[Range], object],
        is_main_thread: Callable[[], bool] = in_main_thread,
    ) -> None:
        self._on_boundary = on_boundary
        self._open_range = open_range
        self._close_range = close_range
        self._is_main_thread = is_main_thread
        self._scheduled, self._opened = -1, os.stat_result(range(10))  # the open file of _SCHEDULED
        self._reset()

    def _reset(self) -> None:
        self._own(None)
        self.calm_until = 0
        self.profiled = self.disturbed = self.listening = False
        self.index = 0
        self.start_ns = 0
        self.last_end_ns = 0
        self.booked = 0  # closed steps
        self._first: list[tuple[Step, bool]] = []
        self._recent: deque[tuple[Step, bool]] = deque(maxlen=RECENT_STEPS)
        self._ring: StepRing | None = None
        self._waited_before_ns = 0
        self._waited_at_ns, self._waited_in_ns = [0] * COLLECTIVE, [0] * COLLECTIVE
        self._depth = [0] * len(PHASE_NAMES)
        self._began_ns = [0] * len(PHASE_NAMES)
        self._spent_ns = [0] * len(PHASE_NAMES)
        self._stepped: set[int] = set()
        self._known: set[int] = set()
        self._fetched = False
        self._forwarded = False
        self._worked = False  # a forward or backward outside a closure, since an optimizer stepped

    def begin(self, phase: int, name: str | None = None) -> Token:
        """Enter a phase (DATA, ...). Returns the argument of `end`: False where the phase is not counted (another
        thread, nested in itself). `name`: the range's name, if it differs from the phase's.
        """
        if get_ident() != self._thread and not self._adopt(get_ident(), phase):
            return False
        depth = self._depth
        nested = depth[phase]
        depth[phase] = nested + 1
        if nested:
            return False
        if phase == FORWARD and depth[BACKWARD]:
            return False  # recomputation of a checkpointed block is part of backward
        now = time_ns()
        if not depth[OPTIMIZER]:  # no step begins inside a closure (LBFGS, Lightning)
            if not self.start_ns:
                self.start_ns = now
                self._waited_before_ns = self._waited_ns()
            if phase == DATA:
                if self._stepped:
                    now = self._boundary(now)
                self._fetched = True
            elif phase == FORWARD:
                if self._stepped and not self._fetched and self._stepped >= self._known:
                    now = self._boundary(now)
                self._forwarded = True
            if phase in (FORWARD, BACKWARD):
                self._worked = True
        self._began_ns[phase] = now
        if phase != COLLECTIVE:  # of which a step has many
            self._waited_at_ns[phase] = self._waited_ns()
        if self.listening:
            return self._open_range(name or _RANGES[phase]) or True
        return True

    def end(self, phase: int, token: Token | None) -> None:
        """Leave a phase entered by `begin`, which returned `token`; None where `begin` failed."""
        if token is None:
            return
        if isinstance(token, Range):
            self._close_range(token)
        depth = self._depth
        if get_ident() != self._thread or not depth[phase]:
            return
        depth[phase] -= 1
        if token is False:
            return
        now = time_ns()
        self.last_end_ns = now
        spent_ns = max(now - self._began_ns[phase], 0)  # the wall clock may be set back
        self._spent_ns[phase] += spent_ns
        waited_ns = 0
        if phase != COLLECTIVE:
            waited_ns = max(self._waited_ns() - self._waited_at_ns[phase], 0)
            self._waited_in_ns[phase] += waited_ns
        if depth[OPTIMIZER] and phase in (FORWARD, BACKWARD):  # a closure's own phases are not the optimizer's
            self._spent_ns[OPTIMIZER] -= spent_ns
            self._waited_in_ns[OPTIMIZER] -= waited_ns

    def optimizer_begins(self, optimizer_id: int) -> None:
        """Handle the beginning of an optimizer step. Without computation since its last step its closure does the work
        (LBFGS on one batch), and the next step begins here.
        """
        again = optimizer_id in self._stepped and not self._worked and not self._depth[OPTIMIZER]
        if again and get_ident() == self._thread:
            self._boundary(time_ns())

    def optimizer_stepped(self, optimizer_id: int) -> None:
        """Book that an optimizer has stepped, or that its GradScaler skipped it."""
        if get_ident() != self._thread:
            return
        if optimizer_id in self._stepped:
            # It stepped twice on what was fetched once: batches no longer mark the steps, so the next forward does.
            # Where no forward is seen either, this is the mark.
            self._known = self._stepped - {GONE}
            self._fetched = False
            if not self._forwarded:
                self._boundary(time_ns())
        self._stepped.add(optimizer_id)
        self._forwarded = self._worked = False

    def optimizer_died(self, optimizer_id: int) -> None:
        """Wait in no further step for an optimizer that is gone: the script makes another one for each epoch."""
        self._known.discard(optimizer_id)
        if optimizer_id in self._stepped:
            self._stepped.discard(optimizer_id)
            self._stepped.add(GONE)

    def mark_step(self) -> None:
        """End a step on a mark of the script, or on what repeats in a loop without optimizers."""
        if self._thread is None:
            self._own(get_ident())
        if get_ident() != self._thread:
            return
        now = time_ns()
        if self.start_ns:
            self._stepped.clear()
            self._boundary(now)
        else:
            self.start_ns = now
            self._waited_before_ns = self._waited_ns()

    def finish(self) -> bool:
        """Book the last, still open step if an optimizer stepped in it; it ends with its last phase."""
        if not self._stepped or self.last_end_ns <= self.start_ns:
            return False
        self._close(self.last_end_ns, disturbed=True)
        self._stepped.clear()
        return True

    def restart(self) -> None:
        """Forget everything, in a forked child."""
        self._reset()

    def write_to(self, ring: StepRing | None) -> None:
        """Write the steps to a ring file too, from the next one on; None: no longer."""
        self._ring = ring

    @property
    def thread(self) -> int:
        """The training thread's id (threading.get_ident), 0 where it is not known yet."""
        return self._thread or 0

    @property
    def phase(self) -> int:
        """The training thread's innermost phase (recomputation counts as backward), else REST."""
        depth = self._depth
        return next((phase for phase in _INNERMOST_FIRST if depth[phase]), REST)

    def logged(self) -> list[tuple[Step, bool]]:
        """The steps kept, oldest first, each with whether it was disturbed (beside compression, or the last): then it
        measures no overhead.
        """
        return [*self._first, *self._recent]

    def _adopt(self, thread: int, phase: int) -> bool:
        """Adopt the thread that calls backward or optimizer as the training thread; before it the main thread."""
        trains = phase in (BACKWARD, OPTIMIZER)
        if self._thread is None and (trains or phase in (DATA, FORWARD)):
            if not trains and not self._is_main_thread():
                return False
        elif trains and self.index == 0 and not self._stepped:
            self._depth = [0] * len(PHASE_NAMES)  # the main thread only prepared; a worker thread trains
        else:
            return False
        self._own(thread)
        return True

    def _own(self, thread: int | None) -> None:
        """Take the calling thread, `thread`, for the training thread; None: no thread."""
        with suppress(OSError):  # there is none, or the script has closed it, and may have opened a file of its own
            if os.path.samestat(os.fstat(self._scheduled), self._opened):
                os.close(self._scheduled)
        self._thread, self._scheduled = thread, -1
        if thread is None:
            return
        with suppress(OSError):  # no Linux
            opened = os.open(_SCHEDULED, os.O_RDONLY | os.O_CLOEXEC)
            if os.pread(opened, 1, 0) in (b"", b"0"):  # of a kernel that does not count: it shows zeros
                os.close(opened)
            else:
                self._scheduled, self._opened = opened, os.fstat(opened)

    def _waited_ns(self) -> int:
        """Time in which the training thread has been ready to run and had no CPU; 0 where the kernel does not count."""
        try:
            return int(os.pread(self._scheduled, 80, 0).split()[1])
        except (OSError, ValueError, IndexError):
            return 0

    def _boundary(self, now_ns: int) -> int:
        self._close(now_ns, self.disturbed)
        self.index += 1
        self._known, self._stepped = self._stepped - {GONE}, set()
        self.start_ns = now_ns
        self._spent_ns = [0] * len(PHASE_NAMES)
        self._waited_in_ns = [0] * COLLECTIVE
        self._fetched = False
        if self.index >= self.calm_until and self._on_boundary(self.index):
            self.start_ns = now_ns = time_ns()
            self._waited_before_ns = self._waited_ns()
        return now_ns

    def _close(self, end_ns: int, disturbed: bool) -> None:
        before_ns, self._waited_before_ns = self._waited_before_ns, self._waited_ns()
        waited_ns = [max(waited, 0) for waited in (self._waited_before_ns - before_ns, *self._waited_in_ns)]
        waited_ns = waited_ns if self._scheduled >= 0 else [-1] * len(waited_ns)
        step = Step._make((self.index, self.start_ns, end_ns, *self._spent_ns, *waited_ns, self.profiled))
        self.booked += 1
        (self._first if self.booked <= FIRST_STEPS else self._recent).append((step, disturbed))
        if self._ring is not None:
            self._ring.write(step)


def step_medians(logged: Sequence[tuple[Step, bool]]) -> dict[str, Any]:
    """Median length of unprofiled and of profiled steps, ns, and the range of either; None without one."""
    bare_ns, profiled_ns = [], []
    after_window = False
    for step, disturbed in logged:
        if step.profiled:
            profiled_ns.append(step.end_ns - step.start_ns)
        elif not disturbed and not after_window and step.number >= _WARM_STEPS:
            bare_ns.append(step.end_ns - step.start_ns)
        after_window = step.profiled  # the step after a window still waits for peers whose export took longer
    medians: dict[str, Any] = {}
    for name, steps_ns in (("bare", bare_ns), ("profiled", profiled_ns)):
        kept = sorted(steps_ns[-_COMPARED_STEPS:])
        medians[f"{name}_step_ns"] = int(median(kept)) if kept else None
        # Between these steps the median lies, 95 of 100 times; of fewer than six steps the shortest and the longest.
        beyond = max(0, int((len(kept) - 1.96 * len(kept) ** 0.5) / 2))
        medians[f"{name}_range_ns"] = [kept[beyond], kept[-1 - beyond]] if kept else None
    return medians
