"""Epochs of a loop whose lines count nothing else: their printed time, else the clock of their lines.

2024-06-25 02:55:36,239 - INFO - Epoch: 230, Avg_loss: 0.574, Duration: 143.92s
[INFO] Epoch 3/30 started ... [INFO] Epoch finished, avg_loss=0.0257, time=38.5s
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from ddprof.slices.training_logs.reading.counting import FEWEST, rises
from ddprof.slices.training_logs.reading.iterations import LoggedRecord
from ddprof.slices.training_logs.reading.kinds import TimeKind, Times
from ddprof.slices.training_logs.reading.lines import Stamp
from ddprof.slices.training_logs.reading.times import Timed, by_clock, by_lines, once_each

EPOCHS = "epochs of a training loop"
_LEARNS = re.compile(r"loss|train|\bacc(?:uracy)?\b|\bval[_ ]")  # others count epochs, too
_ONCE = 1.5  # lines with a time, to an epoch: more are of its iterations, or of several ranks
_MOST_OF_USUAL = 20  # no epoch takes as long as so many others: the job was stopped in between
_OF_EPOCHS = (TimeKind.ONE, TimeKind.ANY, TimeKind.UNNAMED, TimeKind.ALL)
_HEADING = re.compile(r"\W*epoch\W{0,3}\d{1,7}(?: ?/ ?\d{1,7})?\W*")  # what stands below it is of that epoch


class _Epoch(NamedTuple):
    number: int
    clock: Stamp | None
    times: dict[str, float]  # name -> ms


class EpochLines:
    """Collects the lines that name an epoch, or follow one that does and say that it ended."""

    def __init__(self) -> None:
        self._lines: list[_Epoch] = []
        self.noted: float | None = None  # the epoch that was named last
        self._is_heading = False
        self._risen = 0
        self._learns = False
        self._is_new = False

    def take(self, text: str, epoch: float | None, clock: Stamp | None, times: Times) -> None:
        """Read the next line without a counter of iterations."""
        lower = text.lower()
        self._learns |= _LEARNS.search(lower) is not None
        before = self._lines[-1].number if self._lines else None
        if epoch is None and times and ("epoch" in lower or self._is_heading):
            epoch = before
        self._is_heading = _HEADING.fullmatch(lower) is not None
        if epoch is not None and epoch % 1 == 0:
            self._risen += before is not None and epoch > before
            of_it = {name: ms for (kind, name), (ms, _) in times.items() if kind in _OF_EPOCHS and ms > 0}
            self._lines.append(_Epoch(int(epoch), clock, of_it))

    def note(self, epoch: float | None) -> None:
        """Note the epoch that a line names, whatever else it says."""
        if epoch is not None and epoch % 1 == 0:
            self._is_new |= epoch != self.noted
            self.noted = epoch

    def has_begun(self) -> bool:
        """True once where another epoch was named since this was asked."""
        is_new, self._is_new = self._is_new, False
        return is_new

    @property
    def are_there(self) -> bool:
        """True where enough epochs with a time or a clock follow one another, and something is learned."""
        return self._learns and self._risen >= FEWEST - 1 and bool(self.timed().iterations)

    def timed(self) -> Timed:
        """The epochs; none where their lines hold neither times nor a clock."""
        lines = self._lines
        printed = [line for line in lines if line.times]
        names = {name for line in printed for name in line.times}
        often = [name for name in names if 2 * sum(name in line.times for line in printed) >= len(printed)]
        often = [
            name for name in often if not _of_the_run([line.times[name] for line in printed if name in line.times])
        ]
        if often and len(printed) <= _ONCE * (1 + _changes(printed)):
            longest = max(sorted(often), key=lambda name: median(x.times[name] for x in printed if name in x.times))
            timed = [LoggedRecord(x.number, x.times[longest], x.clock) for x in printed if longest in x.times]
            return _of_runs(by_lines(once_each(timed)))
        clocked = [LoggedRecord(line.number, None, line.clock) for line in lines if line.clock]
        return _of_runs(by_clock(once_each(clocked)))


def _of_the_run(ms: Sequence[float]) -> bool:
    """True for times since the start."""
    return len(ms) >= FEWEST and rises(ms) and ms[-1] >= 2 * ms[0]


def _of_runs(timed: Timed) -> Timed:
    """The epochs without the time that lies between runs, which the lines' clock holds as well."""
    usual_ms = median([one.mean_ms for one in timed.iterations]) if timed.iterations else 0.0
    timed.iterations = [one for one in timed.iterations if one.mean_ms <= _MOST_OF_USUAL * usual_ms]
    timed.lapses = [lapse for lapse in timed.lapses if lapse[1] <= _MOST_OF_USUAL * usual_ms]
    return timed


def _changes(lines: Sequence[_Epoch]) -> int:
    return sum(after.number != before.number for before, after in pairwise(lines))
