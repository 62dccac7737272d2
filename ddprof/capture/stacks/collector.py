"""Samples of the training thread's stack, taken from a second thread: in C where built, else in Python.

A sampling thread gets the GIL only where the training thread releases it, so Python code in between is hardly seen and
its time is booked to the next call (17 % of a loop as 1 %, see benchmarks/README.md). `native/stacks.c` therefore makes
the training thread report itself at the interpreter's next check. The collector in Python samples by waiting (`waits`);
with it, `sampler` shortens the interpreter's switch interval while a trace window is open.
"""

from __future__ import annotations

import sys
import threading
import time
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ddprof.capture.describe.stacks import current_frames, uncollected
from ddprof.capture.native import native_module

if TYPE_CHECKING:
    from ddprof.capture.stacks._stacks import StackCollector

# (code, line, code, line, ...), innermost first; a function that calls itself stands there once.
Stack: TypeAlias = tuple[Any, ...]
# Unix ns; ns that have passed and that it stands for; ns until the thread answered; phase; step; stack; stacks of the
# other threads, by their ids, where the answer was late.
Sample: TypeAlias = tuple[int, int, int, int, int, Stack, "list[tuple[int, Stack]] | None"]

MAX_FRAMES = 128  # innermost ones, as in native/stacks.c; deeper ones are left out
LATE_NS = 5_000_000  # the interpreter's switch interval, sys.getswitchinterval()
_MAX_WALK = 4096  # frames of a stack: deeper ones are runaway recursion
_MAX_SAMPLES = 4096  # held between two turns
_MODULE = f"{__package__}._stacks"  # a job knows this package by another name (capture/shim/sitecustomize.py)


class TrainingThread(Protocol):
    """The phase timers, which know the training thread."""

    @property
    def thread(self) -> int:
        """Number of the thread (threading.get_ident()), 0 where it is not known yet."""

    @property
    def phase(self) -> int:
        """The phase as in files.step: DATA, ..., REST."""

    @property
    def index(self) -> int:
        """The number of the open step."""


class ThreadCollector:
    """Samples the thread `thread` every `period_ns` (0: never) while `collect` runs in its own thread and is not
    `paused`.

    `spent_ns`: training-thread time spent on samples.
    """

    waits = True

    def __init__(self, tracker: TrainingThread) -> None:
        self.period_ns = 0
        self.thread = 0
        self.is_main = False
        self.paused = False
        self.spent_ns = 0
        self.dropped = 0
        self._tracker = tracker
        self._samples: list[Sample] = []
        self._woken = threading.Event()
        self._due_ns = self._covered_until_ns = 0
        self._ended = False

    def collect(self, duration_ns: int) -> None:
        """Take samples for a time, or until `wake`."""
        end_ns = time.monotonic_ns() + duration_ns
        self._covered_until_ns = self._covered_until_ns or time.monotonic_ns()
        while (now_ns := time.monotonic_ns()) < end_ns and not self._ended:
            period_ns = self.period_ns
            if not now_ns - period_ns <= self._due_ns <= now_ns + period_ns:
                self._due_ns = now_ns  # the first sample, another period, or the machine kept us waiting
            until_ns = min(self._due_ns, end_ns) if period_ns else end_ns
            if self._woken.wait(max(until_ns - now_ns, 0) / 1e9):
                self._woken.clear()
                return
            if self.paused:
                self._due_ns += period_ns
            elif period_ns and self._due_ns <= time.monotonic_ns():
                self._sample(period_ns)

    def wake(self) -> None:
        """End `collect` now."""
        self._woken.set()

    def end(self, patience_ns: int) -> bool:
        """Stop sampling before the interpreter ends; return True where the thread has left `collect` within
        `patience_ns`. This collector never samples without the GIL.
        """
        self._ended = True
        self._woken.set()
        return True

    def abandon(self) -> None:
        """Forget the thread after a fork: the child has none."""
        self._ended = True

    def take(self) -> list[Sample]:
        """The samples since the last call."""
        taken, self._samples = self._samples, []
        return taken

    def stack_of(self, frame: FrameType) -> Stack:
        """The stack of any frame, in the samples' form."""
        return stack_of(frame)

    def _sample(self, period_ns: int) -> None:
        now_ns = time.monotonic_ns()
        late_ns = max(now_ns - self._due_ns, 0)  # until this thread had the GIL
        # The time that has passed, not the one that was planned; nobody knows what ran in a pause longer than that.
        covers_ns = min(max(self._due_ns - self._covered_until_ns, 0), period_ns) + late_ns
        self._covered_until_ns = now_ns
        self._due_ns += period_ns * (1 + late_ns // period_ns)
        frames = current_frames()
        frame = frames.pop(self.thread, None)
        if frame is None:
            return
        if len(self._samples) >= _MAX_SAMPLES:
            self.dropped += 1
            return
        beside = [(ident, stack_of(other)) for ident, other in frames.items()] if late_ns > LATE_NS else None
        at_ns, tracker = time.time_ns() - late_ns, self._tracker
        self._samples.append((at_ns, covers_ns, late_ns, tracker.phase, tracker.index, stack_of(frame), beside))


def stack_of(frame: FrameType | None) -> Stack:
    """The innermost frames of a stack."""
    parts: list[CodeType | int] = []
    last = None
    with uncollected():
        for _ in range(_MAX_WALK):
            if frame is None or len(parts) >= 2 * MAX_FRAMES:
                break
            if frame.f_code is not last:
                last = frame.f_code
                parts += (last, frame.f_lineno or 0)
            frame = frame.f_back
    return tuple(parts)


def make_collector(tracker: TrainingThread) -> StackCollector | ThreadCollector:
    """The collector in C; the one in Python where there is none."""
    native = native_module(_MODULE)
    if native is None:
        return ThreadCollector(tracker)
    collector: StackCollector = native.StackCollector(tracker, sys._current_frames)
    return collector
