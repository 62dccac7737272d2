"""Times of iterations from their lines: the printed time, checked against the lines' clock.

Several programs print the mean since the start in their first lines, and some in all of them. No iteration takes longer
than lies between its line and the one before it, so that a time which does is such a mean, and the clock decides; a
longer time between lines is a pause beside the iterations (saving, evaluation), which Megatron's timers leave out.

Of a loop whose lines count nothing but epochs, the times of these:

2024-06-25 02:55:36,239 - INFO - Epoch: 230, Avg_loss: 0.574, Duration: 143.92s
[INFO] Epoch 3/30 started ... [INFO] Epoch finished, avg_loss=0.0257, time=38.5s
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from ddprof.slices.training_logs.model import DATA, LoggedIteration, TimerReading
from ddprof.slices.training_logs.reading.counting import FEWEST, rises
from ddprof.slices.training_logs.reading.iterations import LoggedRecord
from ddprof.slices.training_logs.reading.kinds import TimeKind, Times
from ddprof.slices.training_logs.reading.lines import Stamp

# A clock that is written in grains tells a span of so many of them to 5 %, as well as one decimal of most timers.
GRAINS = 20
FEWEST_CROSSED = 3  # one line may be out of order
_SAME = 0.02  # relative: a mean as printed with its few digits, against that of the lines before


@dataclass
class Timed:
    """Iterations with their times; `means`: (number, printed ms, ms by the clock) where the printed time differs;
    `lapses`: (number, ms by the clock since the line before, what iterations take of that). `are_means`: each time is
    the mean of the iterations since the line before.
    """

    iterations: list[LoggedIteration] = field(default_factory=list)
    means: list[tuple[int, float, float]] = field(default_factory=list)
    lapses: list[tuple[int, float, float]] = field(default_factory=list)
    are_means: bool = False


def once_each(records: Sequence[LoggedRecord]) -> list[LoggedRecord]:
    """The records of one job, without duplicates of an iteration from another rank or a second logger."""
    kept: list[LoggedRecord] = []
    seen: dict[int, float | None] = {}
    last = -1
    for record in max(jobs_at_once(records), key=len):
        if record.number < last - 1 and _is_again(record, kept[-1], seen):
            seen = {}  # started again, from an earlier checkpoint
        if record.number in seen:
            continue
        seen[record.number] = record.ms
        last = record.number
        kept.append(record)
    return kept


def _is_again(record: LoggedRecord, before: LoggedRecord, seen: Mapping[int, float | None]) -> bool:
    """True for an iteration that is done a second time: later than the line before. Another rank's lines are as old as
    those of the first, and without a clock as long.
    """
    if record.clock and before.clock:
        return record.clock.s > before.clock.s
    return seen.get(record.number, 0.0) != record.ms


def jobs_at_once(records: Sequence[LoggedRecord]) -> list[Sequence[LoggedRecord]]:
    """The records by job: where several write one file at the same time, numbers go back and come back past where they
    were, which restarts do not.
    """
    numbers = [record.number for record in records]
    crossed = sum(b < a - 1 and c > a for a, b, c in zip(numbers, numbers[1:], numbers[2:], strict=False))
    if crossed < FEWEST_CROSSED:
        return [records]
    jobs: list[list[LoggedRecord]] = []  # by their last line
    for record in records:
        behind = [at for at, job in enumerate(jobs) if job[-1].number < record.number]
        job = jobs.pop(max(reversed(behind), key=lambda at: jobs[at][-1].number)) if behind else []
        job.append(record)
        jobs.append(job)
    return list(jobs)


def by_lines(records: Sequence[LoggedRecord]) -> Timed:
    """Iterations of lines that print a time."""
    timed = Timed()
    before: LoggedRecord | None = None
    spent_ms, ran = 0.0, 0  # since the start, by the clock
    last = 0, 0.0  # iterations and ms between the last two lines
    is_mean = False
    for record in records:
        ms, printed_ms = record.ms or 0.0, None
        steps = 0 if before is None else record.number - before.number
        lapse_ms = error_ms = None
        if before is not None and steps > 0 and record.clock is not None and before.clock is not None:
            lapse_ms = (record.clock.s - before.clock.s) * 1e3 / steps
            error_ms = (record.clock.grain_s + before.clock.grain_s) * 1e3 / steps
        if steps <= 0:
            spent_ms, ran, is_mean = ms, 1, False
            timed.lapses.extend(_between_epochs(before, record, last))
        elif lapse_ms is not None and error_ms is not None and (lapse_ms > 0 or 0 <= lapse_ms <= ms <= error_ms):
            spent_ms, ran = spent_ms + lapse_ms * steps, ran + steps
            is_too_long = ms > lapse_ms / (1 - 1 / GRAINS) + error_ms
            is_mean = is_too_long or (is_mean and abs(ms - spent_ms / ran) <= _SAME * ms)
            if is_mean and abs(ms - lapse_ms) > error_ms:
                timed.means.append((record.number, ms, lapse_ms))
                ms, printed_ms = lapse_ms, ms
            timed.lapses.append((record.number, lapse_ms * steps, ms * steps))
        told = LoggedIteration(record.number, ms, record.tflops, record.batch, printed_ms, record.goes_on)
        timed.iterations.append(told)
        last = (steps, (lapse_ms or 0.0) * steps) if steps > 0 else last
        before = record
    return timed


def _between_epochs(
    before: LoggedRecord | None, record: LoggedRecord, last: tuple[int, float]
) -> list[tuple[int, float, float]]:
    """The lapse from the last line of an epoch to the first of the next, and what iterations take of it at most: those
    that end the one are those left, no more than lie between the `last` two lines (their number and ms).
    """
    steps, ms = last
    if before is None or not (record.goes_on and ms and record.clock and before.clock):
        return []
    lapse_ms = (record.clock.s - before.clock.s) * 1e3
    ended = steps if record.left is None else min(record.left, steps)
    trained_ms = ms / steps * (ended + min(record.number, steps))
    return [(record.number, lapse_ms, min(trained_ms, lapse_ms))] if lapse_ms > 0 else []


def by_clock(records: Sequence[LoggedRecord]) -> Timed:
    """Iterations of lines with only a clock, in spans long enough for its resolution."""
    timed = Timed(are_means=True)
    anchor: LoggedRecord | None = None
    last = 0, 0.0  # iterations and ms between the last two lines
    goes_on = False
    for record in records:
        if record.clock is None:
            continue
        if anchor is None or anchor.clock is None or record.number <= anchor.number or record.clock.s < anchor.clock.s:
            timed.lapses.extend(_between_epochs(anchor, record, last))
            anchor, goes_on = record, record.goes_on
            continue
        span_s = record.clock.s - anchor.clock.s
        if span_s >= GRAINS * max(record.clock.grain_s, anchor.clock.grain_s):
            ms = span_s * 1e3 / (record.number - anchor.number)
            grain_ms = (record.clock.grain_s + anchor.clock.grain_s) * 1e3 / (record.number - anchor.number)
            told = LoggedIteration(record.number, ms, record.tflops, record.batch, None, goes_on, grain_ms)
            timed.iterations.append(told)
            timed.lapses.append((record.number, span_s * 1e3, span_s * 1e3))
            last = record.number - anchor.number, span_s * 1e3
            anchor, goes_on = record, False
    return timed


def by_rate(records: Sequence[LoggedRecord]) -> Timed:
    """The last rate of bars too short for their clock."""
    last = max(records, key=lambda record: record.number, default=None)
    return Timed([] if last is None or last.ms is None else [LoggedIteration(last.number, last.ms)])


EPOCHS = "epochs of a training loop"
_LEARNS = re.compile(r"loss|train|\bacc(?:uracy)?\b|\bval[_ ]")  # others count epochs, too
_ONCE = 1.5  # lines with a time, to an epoch: more are of its iterations, or of several ranks
_MOST_OF_USUAL = 20  # no epoch takes as long as so many others: the job was stopped in between
_OF_EPOCHS = (TimeKind.ONE, TimeKind.ANY, TimeKind.UNNAMED, TimeKind.ALL, TimeKind.EPOCH)
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
        self._waits: dict[float, list[float]] = {}  # epoch -> times that its lines call a wait for data, ms

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

    def note_wait(self, ms: float) -> None:
        """Note a time that a line of the epoch calls a wait for its data."""
        if ms > 0 and self.noted is not None:
            self._waits.setdefault(self.noted, []).append(ms)

    def waits(self) -> list[TimerReading]:
        """The wait of each epoch for its data, where it says so once."""
        alone = [ms for ms in self._waits.values() if len(ms) == 1]
        each = enumerate(alone if 2 * len(alone) > len(self._waits) else ())
        return [TimerReading(DATA, block, ms, None, False) for block, (ms,) in each]

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
