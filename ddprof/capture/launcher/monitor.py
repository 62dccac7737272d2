"""Requests of `ddprof run` by the step rings: trace windows when steps become slow, less in dear ones.

All of it runs in the launching process; the training processes only write their rings. Monitor mode asks for a window
after

- an outlier: a step above the early median + max(8 MAD, 50 %), which spares steady and noisy jobs alike;
- a slow-down: 20 steps whose median is 20 % above the early one;
- a straggler: the same rank late by a tenth of the step for 20 steps.

The usual step is that of the last 500. As a job may run for weeks, windows are minutes apart, and limited per hour and
in megabytes per day.

Windows sample stacks more often and record every operator's shapes: where that is too dear, later ones do not. One
process decides for all ranks and from which step on, as differences in recording would look like slow ranks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from ddprof.capture.files.control import INSTRUMENTS, LESS, Request, send
from ddprof.capture.files.layout import TRACE_SUFFIX, host_label
from ddprof.capture.launcher.host.counters import CounterLog, HostCounters
from ddprof.capture.launcher.host.gpus import GpuWatch
from ddprof.capture.launcher.live import LiveRank, first_step_for_all, latest_late, read_ranks, request_window

_WARM_STEPS = 10  # start-up is no outlier
_BASELINE_STEPS = 50  # before anything is said
_KNOWN_STEPS = 500  # the last ones: a checkpoint or an evaluation every hundred steps is among them
_PERSISTENT_STEPS = 20  # that a slowdown or a late rank has to last
_SLOWDOWN_SHARE = 0.20  # of the usual step: slower than that for _PERSISTENT_STEPS opens a window
_OUTLIER_MADS = 8.0  # median absolute deviations: 5.4 standard deviations of normally spread steps
_OUTLIER_SHARE = 0.50  # of the usual step, where steps hardly vary
_RARE = 100  # one step of so many
# An outlier is worth the second or so that a window costs (its export, and steps with every instrument): a step of 21
# instead of 8 ms is not, however far it lies outside what is usual.
_OUTLIER_NS = 500_000_000
_COOLDOWN_STEPS, _COOLDOWN_S = 60, 120.0
_HOUR_S, _DAY_S = 3600.0, 86_400.0
_WINDOWS_AN_HOUR = 6
_BYTES_A_DAY = 1 << 30  # of all traces in the run folder
_MAX_REASONS = 256  # in the manifest
_COUNTER_PERIOD_S = 1.0  # between two samples of the host's counters
USUAL_MOST = 0.15  # of a step; docs/accuracy.md prices what a step takes without the profiler up to about that well
_MIN_STEPS = 8  # outside windows, before their median says anything (analyzers/job/whole_run/unprofiled_steps.py)
_RECENT = 512  # steps of 1 ms between two looks
_NO_WINDOW = len(INSTRUMENTS) + 1


class Watcher:
    """Decides, from the step rings only, when a window is worth its cost."""

    def __init__(self) -> None:
        self._seen = -1
        self._baseline: deque[int] = deque(maxlen=_KNOWN_STEPS)
        self._quiet_until = 0
        self._late: tuple[int, int] | None = None  # (rank, since which step)
        self._reported_late: int | None = None

    def observe(self, ranks: Sequence[LiveRank]) -> str | None:
        """A reason to open a window now, or None."""
        if not ranks or not all(rank.steps for rank in ranks):
            return None
        newest = min(rank.last_step for rank in ranks)
        fresh = self._fresh(ranks, newest)
        self._seen = newest
        reason = None
        if len(self._baseline) >= _BASELINE_STEPS:
            usual = median(self._baseline)
            reason = self._outlier(fresh, usual) or self._slowdown(ranks, usual)
        reason = reason or self._straggler(ranks, newest)
        self._baseline.extend(ns for _, ns in fresh)
        if reason is None or newest < self._quiet_until:
            return None
        self._quiet_until = newest + _COOLDOWN_STEPS
        return reason

    def _fresh(self, ranks: Sequence[LiveRank], newest: int) -> list[tuple[int, int]]:
        """(step, ns of its slowest rank) for new unprofiled steps, except the one after a window."""
        slowest: dict[int, int] = {}
        spoiled: set[int] = set()
        for rank in ranks:
            for step in rank.steps:
                if step.profiled:
                    spoiled.update((step.number, step.number + 1))
                if self._seen < step.number <= newest and step.number >= _WARM_STEPS:
                    slowest[step.number] = max(slowest.get(step.number, 0), step.end_ns - step.start_ns)
        return [(number, ns) for number, ns in sorted(slowest.items()) if number not in spoiled]

    def _outlier(self, fresh: list[tuple[int, int]], usual: float) -> str | None:
        spread = median(abs(ns - usual) for ns in self._baseline)
        # Beyond what has come before, too: a job whose every hundredth step is long is as it always was.
        usual_worst = sorted(self._baseline)[-max(len(self._baseline) // _RARE, 1)]
        limit = max(usual + max(_OUTLIER_MADS * spread, _OUTLIER_SHARE * usual, _OUTLIER_NS), usual_worst)
        worst = max(fresh, key=lambda item: item[1], default=None)
        if worst is None or worst[1] <= limit:
            return None
        return f"step {worst[0]} took {worst[1] / 1e6:.0f} ms, {usual / 1e6:.0f} ms is usual"

    def _slowdown(self, ranks: Sequence[LiveRank], usual: float) -> str | None:
        recent = [s.end_ns - s.start_ns for s in ranks[0].steps[-_PERSISTENT_STEPS:] if not s.profiled]
        if len(recent) < _PERSISTENT_STEPS or median(recent) <= (1 + _SLOWDOWN_SHARE) * usual:
            return None
        now = median(recent)
        self._baseline.clear()  # the new normal: said once
        self._baseline.extend([int(now)] * _BASELINE_STEPS)
        return f"steps take {now / 1e6:.0f} ms now, {usual / 1e6:.0f} ms before"

    def _straggler(self, ranks: Sequence[LiveRank], newest: int) -> str | None:
        late = latest_late(ranks)
        if late is None or newest < _WARM_STEPS:
            self._late = self._reported_late = None
            return None
        if self._late is None or self._late[0] != late.rank:
            self._late = (late.rank, newest)
        if late.rank == self._reported_late or newest - self._late[1] < _PERSISTENT_STEPS:
            return None
        self._reported_late = late.rank
        return f"rank {late.rank} is late by {late.late_ns / 1e6:.0f} ms per step, in {late.phase}"


class WindowBudget:
    """Limit on the frequency of windows and on the bytes of their traces."""

    def __init__(self) -> None:
        self._opened: deque[float] = deque(maxlen=_WINDOWS_AN_HOUR)
        self._day_began, self._bytes_then = 0.0, 0

    def allows(self, now_s: float, written_bytes: int) -> bool:
        """True where the budget has room for a window; `written_bytes`: of all traces so far."""
        if now_s - self._day_began >= _DAY_S or not self._opened:
            self._day_began, self._bytes_then = now_s, written_bytes
        if self._opened and now_s - self._opened[-1] < _COOLDOWN_S:
            return False
        is_full = len(self._opened) == _WINDOWS_AN_HOUR and now_s - self._opened[0] < _HOUR_S
        if is_full or written_bytes - self._bytes_then > _BYTES_A_DAY:
            return False
        self._opened.append(now_s)
        return True


class JobMonitor:
    """Work of `ddprof run --mode monitor`, twice a second. It writes counters; the leader's also requests windows."""

    def __init__(self, folder: Path, window_steps: int, leader: bool, pid: int, gpus: GpuWatch) -> None:
        self._folder = folder
        self._window_steps = window_steps
        self._watcher = Watcher() if leader else None
        self._counters = HostCounters(gpus)
        self._log = CounterLog(folder / f"host.{host_label()}.{pid}")
        self._next_sample = 0.0
        self._budget = WindowBudget()
        self.reasons: list[str] = []

    def tick(self) -> None:
        """Check once. Raises OSError where the folder cannot be written."""
        now = time.monotonic()
        if now >= self._next_sample:
            self._next_sample = now + _COUNTER_PERIOD_S
            self._log.add(self._counters.sample())
        if self._watcher is None:
            return
        ranks = read_ranks(self._folder)
        reason = self._watcher.observe(ranks)
        if reason is not None and self._budget.allows(now, self._written_bytes()):
            first_step = request_window(self._folder, ranks, self._window_steps, reason)
            self.reasons.append(f"window from step {first_step}: {reason}")
            del self.reasons[_MAX_REASONS:]

    def _written_bytes(self) -> int:
        traces = [path for path in self._folder.iterdir() if TRACE_SUFFIX in path.name]
        return sum(path.stat().st_size for path in traces if path.exists())


class WindowCost:
    """Judges each window once. `most`: allowed share by which a step in a window may be longer, None for the
    default; above a requested share no window opens once all instruments are omitted.
    """

    def __init__(self, folder: Path, most: float | None) -> None:
        self._folder = folder
        self._most = USUAL_MOST if most is None else most
        self._last_level = len(INSTRUMENTS) if most is None else _NO_WINDOW
        self._level = 0
        self._judged = -1

    def tick(self) -> None:
        """Check once. Raises OSError where the folder cannot be written."""
        if self._level < self._last_level:
            self.look(read_ranks(self._folder, recent=_RECENT))

    def look(self, ranks: Sequence[LiveRank]) -> None:
        """Ask for less where the last window cost too much on some rank."""
        last = max((step.number for rank in ranks for step in rank.steps if step.profiled), default=-1)
        costs = [cost for rank in ranks if (cost := _cost(rank, self._judged)) is not None]
        if last <= self._judged or len(costs) < len(ranks):
            return
        self._judged = last
        if max(costs) > self._most and self._level < self._last_level:
            self._level += 1
            reason = f"steps in a window took {100 * max(costs):.0f} % longer, {100 * self._most:.0f} % is allowed"
            send(self._folder, Request(LESS, first_step_for_all(ranks), self._level, reason))


def _cost(rank: LiveRank, after_step: int) -> float | None:
    """Share of a step by which a rank's steps in windows after `after_step` were longer; None while a window is open,
    or with too few steps. The step after a window is excluded, as it pays for the export.
    """
    traced = [step for step in rank.steps if step.profiled and step.number > after_step]
    windows = {step.number + 1 for step in rank.steps if step.profiled}
    bare = [step for step in rank.steps if not step.profiled and step.number not in windows]
    if not traced or len(bare) < _MIN_STEPS or bare[-1].number < traced[-1].number:
        return None
    took, usual = (median(step.end_ns - step.start_ns for step in steps) for steps in (traced, bare))
    return took / max(usual, 1) - 1
