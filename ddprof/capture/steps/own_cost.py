"""Cost of ddprof itself in an unprofiled step, measured in a sample of the steps.

In a sampled step every hook is timed where it runs, with the caches as cold as the training leaves them; the same calls
in a tight loop take half as long (benchmarks/README.md). The code around the hooks (the functions that wrap the user's
calls, the entry of the guard) cannot be timed from inside. The ratio of the whole to the hook alone is measured once,
in a tight loop around a phase timer in Python, and assumed to be the same with cold caches. The result is an upper
estimate, because timing a hook takes time as well.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

from ddprof.capture.files.step import FORWARD
from ddprof.capture.guard import Guard
from ddprof.capture.steps.tracker import StepTracker
from ddprof.capture.window.annotate import Annotator, Range

FIRST_STEP = 3  # by then the roots are known, and the learning is over
PERIOD_STEPS = 17  # a prime, so that what the job does every second, fourth or tenth step is sampled fairly
_EARLY_STEPS = 8  # every third step before it, so that a short run has samples too
_KEPT_SAMPLES = 256
_CALIBRATION_ROUNDS, _CALIBRATION_CALLS = 100, 10


class OwnCost:
    """Times the hooks in some of the steps that it is notified of. Times in ns."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._samples_ns: deque[int] = deque(maxlen=_KEPT_SAMPLES)  # time in the hooks of one step
        self._measuring = False
        self._measured = False
        self.next_step = FIRST_STEP  # `step_begins` has nothing to do before it

    def step_begins(self, index: int, usable: bool) -> None:
        """Handle the beginning of step `index`, in a hook. `usable`: no window is near it or the step before."""
        guard = self._guard
        self.next_step = index + 1
        if self._measuring:
            guard.time_hooks(False)
            self._measuring, self._measured = False, usable
        elif self._measured:  # the last hook of the sampled step, the boundary at its end, has returned by now
            self._samples_ns.append(guard.spent_ns)
            self._measured = False
            self.next_step = _next_sampled(index)
        elif usable:
            guard.time_hooks(True)
            self._measuring = True

    def per_step_ns(self) -> int | None:
        """The median sample; None without one."""
        return int(median(self._samples_ns) * whole_share()) if self._samples_ns else None


def _next_sampled(index: int) -> int:
    return index + 1 if index < _EARLY_STEPS else index + PERIOD_STEPS - index % PERIOD_STEPS


_whole_share: list[float] = []


def whole_share() -> float:
    """Cost of a phase timer with its surrounding code over the timer alone: a ratio, measured once per process."""
    if not _whole_share:
        guard, tracker = Guard(), StepTracker(lambda index: False, Annotator().open, Range.close)
        begin, end = guard.wrap_hook(tracker.begin), guard.wrap_hook(tracker.end)

        def timed(*args: Any, **kwargs: Any) -> None:
            token = begin(FORWARD)
            try:
                _nothing(*args, **kwargs)
            finally:
                end(FORWARD, token)

        def timer() -> None:
            tracker.end(FORWARD, tracker.begin(FORWARD))

        nothing_ns, whole_ns, alone_ns = _per_call_ns(_nothing, timed, timer)
        surroundings_ns = max(whole_ns - alone_ns, 0)
        _whole_share.append(1 + surroundings_ns / max(alone_ns - nothing_ns, 1))
    return _whole_share[0]


def _per_call_ns(*functions: Callable[[], None]) -> list[float]:
    """Time of each function in its fastest round, as slower rounds include other processes' time. The functions
    alternate, so that slow phases of the machine affect all of them.
    """
    fastest_ns = [math.inf] * len(functions)
    for _ in range(_CALIBRATION_ROUNDS):
        for index, function in enumerate(functions):
            started_ns = time.perf_counter_ns()
            for _ in range(_CALIBRATION_CALLS):
                function()
            fastest_ns[index] = min(fastest_ns[index], time.perf_counter_ns() - started_ns)
    return [ns / _CALIBRATION_CALLS for ns in fastest_ns]


def _nothing() -> None:
    return None
