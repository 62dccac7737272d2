"""Sampling rate: as often as wanted within a share of the time."""

from __future__ import annotations

from collections import deque
from statistics import median

WHOLE_RUN_HZ = 10.0  # 6,000 samples in ten minutes
START_UP_HZ = 1.0  # until the third step
WINDOW_HZ = 500.0  # a line that holds 2 ms of a step is seen in each
WORKER_HZ = 5.0  # a rank may have dozens of loader workers
EARLY_TIMES = 20.0  # as often in the first seconds after the start: a short job has no others
EARLY_NS = 5e9  # the first seconds
EARLY_SHARE = 0.02  # of those seconds: 0.1 s of a run at most
WHOLE_RUN_SHARE = 0.001  # what sampling may cost of the time that passes
WINDOW_SHARE = 0.02  # the same in trace windows, in which the profiler costs 5 % and more
_SLOWEST_HZ = 0.2  # however dear a sample is: a rank that hangs is still seen
_FIRST_COST_NS = 100_000.0  # of a sample, until some have been taken (benchmarks/README.md)
_MEMORY = 9  # measurements of what a sample costs; their median, because in some the machine kept us waiting
_FEW = 3  # measurements: with fewer, one that was disturbed is the median
WHOLE_RUN_AHEAD_NS = 5e9  # what was spent beyond the share is saved within so long
WINDOW_AHEAD_NS = 1e9  # windows are short


class SampleRate:
    """The period between two samples, from the time spent so far and the cost of the last samples."""

    def __init__(self, hz: float, share: float, ahead_ns: float) -> None:
        self._hz = hz
        self._ahead_ns = ahead_ns
        self._share = share
        self._each_ns = deque([_FIRST_COST_NS] * (_FEW - 1), _MEMORY)
        self._measured = 0
        self.samples = 0
        self.cost_ns = 0
        self.lasted_ns = 0

    def measured(self, samples: int, taking_ns: int, booking_ns: int, lasted_ns: int) -> None:
        """Note the number of samples taken and booked in some time, and their costs."""
        self.samples += samples
        self.cost_ns += taking_ns + booking_ns
        self.lasted_ns += lasted_ns
        if samples:
            self._each_ns.append(taking_ns / samples)
            self._measured += 1

    def expect(self, other: SampleRate) -> None:
        """Assume another rate's cost per sample until own samples exist."""
        if not self._measured and other._measured:
            self._each_ns = deque([median(other._each_ns)] * (_FEW - 1), _MEMORY)

    @property
    def is_new(self) -> bool:
        """True where the cost of its samples is hardly known yet."""
        return self._measured < _FEW

    @property
    def period_ns(self) -> int:
        """Time between samples, ns."""
        left_ns = self._share * (self.lasted_ns + self._ahead_ns) - self.cost_ns
        affordable_hz = min(left_ns / self._ahead_ns, self._share) * 1e9 / max(median(self._each_ns), 1.0)
        return int(1e9 / max(min(self._hz, affordable_hz), _SLOWEST_HZ))

    @property
    def cost_share(self) -> float | None:
        """Cost as a share of the elapsed time; None without samples."""
        return self.cost_ns / self.lasted_ns if self.lasted_ns else None
