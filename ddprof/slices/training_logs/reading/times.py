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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, repeat
from math import isnan
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from ddprof.slices.training_logs.model import DATA, LoggedIteration, TimerReading
from ddprof.slices.training_logs.reading.counting import FEWEST, on_their_days, rises
from ddprof.slices.training_logs.reading.iterations import LoggedRecord, table_of_records
from ddprof.slices.training_logs.reading.kinds import TimeKind, Times
from ddprof.slices.training_logs.reading.lines import Stamp
from ddprof.tables import Array

# A clock that is written in grains tells a span of so many of them to 5 %, as well as one decimal of most timers.
GRAINS = 20
FEWEST_CROSSED = 3  # one line may be out of order
_LAST_DIGIT = 0.005  # relative, at most: of the three digits of a bar's rate
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


def once_each(records: Array) -> Array:
    """The records of one job, without duplicates of an iteration from another rank or a second logger."""
    records = max(jobs_at_once(records), key=len)
    numbers = records["number"]
    if (numbers[1:] > numbers[:-1]).all():
        return records
    kept: list[int] = []
    seen: dict[int, float] = {}
    last = -1
    clocks, times = records["s"], records["ms"]
    for at, number in enumerate(numbers.tolist()):
        if number < last - 1 and _is_again(number, times[at], clocks[at] - clocks[kept[-1]], seen):
            seen = {}  # started again, from an earlier checkpoint
        if number not in seen:
            seen[number] = times[at]
            last = number
            kept.append(at)
    return records[kept]


def _is_again(number: int, ms: float, since_s: float, seen: Mapping[int, float]) -> bool:
    """True for an iteration done again, later than the line before; other ranks' lines are as old, or take as long."""
    if not isnan(since_s):
        return since_s > 0
    before_ms = seen.get(number, 0.0)
    return before_ms != ms and not (isnan(before_ms) and isnan(ms))


def jobs_at_once(records: Array) -> list[Array]:
    """The records by job: of several at once numbers go back and come back past where they were, unlike restarts'."""
    numbers = records["number"]
    crossed = (numbers[1:-1] < numbers[:-2] - 1) & (numbers[2:] > numbers[:-2])
    if np.count_nonzero(crossed) < FEWEST_CROSSED:
        return [records]
    jobs: list[list[int]] = []  # by their last line
    of = numbers.tolist()
    for at, number in enumerate(of):
        behind = [row for row, job in enumerate(jobs) if of[job[-1]] < number]
        job = jobs.pop(max(reversed(behind), key=lambda row: of[jobs[row][-1]])) if behind else []
        job.append(at)
        jobs.append(job)
    return [records[job] for job in jobs]


def by_lines(records: Array) -> Timed:
    """Iterations of lines that print a time."""
    numbers, s, grains_s = records["number"], records["s"], records["grain_s"]
    ms = np.nan_to_num(records["ms"])
    steps = np.diff(numbers, prepend=numbers[:1])
    apart = np.where(steps > 0, steps, np.nan)
    lapse_ms = np.diff(s, prepend=np.nan) * 1e3 / apart
    error_ms = (grains_s + np.concatenate(([np.nan], grains_s[:-1]))) * 1e3 / apart
    holds = (lapse_ms > 0) | ((lapse_ms == 0) & (ms >= 0) & (ms <= error_ms))
    are_means = _are_means(ms, steps, lapse_ms, holds, ms > lapse_ms / (1 - 1 / GRAINS) + error_ms)
    are_means &= np.abs(ms - lapse_ms) > error_ms
    if not are_means.any() and _are_too_long(ms * steps, lapse_ms * steps, error_ms * steps):
        return by_clock(records)
    printed_ms, ms = np.where(are_means, ms, np.nan), np.where(are_means, lapse_ms, ms)
    timed = Timed(list(_iterations(records, ms, printed_ms, np.zeros(len(ms)))))
    timed.means = list(_rows(numbers, printed_ms, ms, are_means))
    risen = np.flatnonzero(steps > 0)
    for first, end in pairwise((*np.flatnonzero(steps <= 0).tolist(), len(records))):
        if row := int(np.searchsorted(risen, first)):
            before = risen[row - 1]
            last = int(steps[before]), float(np.nan_to_num(lapse_ms[before]) * steps[before])
            timed.lapses.extend(_between_epochs(records, first - 1, first, last))
        own = slice(first, end)
        timed.lapses.extend(_rows(numbers[own], (lapse_ms * steps)[own], (ms * steps)[own], holds[own]))
    return timed


def _are_too_long(spent_ms: Array, lapse_ms: Array, error_ms: Array) -> bool:
    """True for times that together exceed what lies between their lines, though a coarse clock shows none as a mean."""
    moves = lapse_ms >= 0
    begins = np.count_nonzero(moves & ~np.concatenate(([False], moves[:-1])))  # of spans, each as much off as one line
    error = begins * np.nanmax(error_ms, initial=0.0, where=moves)
    return bool(spent_ms[moves].sum() > lapse_ms[moves].sum() / (1 - 1 / GRAINS) + error) and bool(
        lapse_ms[moves].any()
    )


def _are_means(ms: Array, steps: Array, lapse_ms: Array, holds: Array, are_too_long: Array) -> Array:
    """Mask of means since the start: longer than a lapse that `holds`, or after such a one the mean by the clock."""
    are_means = holds & are_too_long
    spent_ms, ran, is_mean = 0.0, 0, False  # since the start, by the clock
    for at in range(len(ms)) if are_means.any() else ():
        if steps[at] <= 0:
            spent_ms, ran, is_mean = ms[at], 1, False
        elif holds[at]:
            spent_ms, ran = spent_ms + lapse_ms[at] * steps[at], ran + steps[at]
            is_mean = are_means[at] or (is_mean and abs(ms[at] - spent_ms / ran) <= _SAME * ms[at])
            are_means[at] = is_mean
    return are_means


def _rows(numbers: Array, before: Array, behind: Array, mask: Array) -> Iterator[tuple[int, float, float]]:
    return zip(*(column[mask].tolist() for column in (numbers, before, behind)), strict=True)


def _iterations(records: Array, ms: Array, printed_ms: Array, grain_ms: Array) -> Iterator[LoggedIteration]:
    tflops, printed = (_given(column, float) for column in (records["tflops"], printed_ms))
    of = records["number"].tolist(), ms.tolist(), tflops, _given(records["batch"], int), printed
    columns = *of, records["goes_on"].tolist(), grain_ms.tolist()
    return map(partial(tuple.__new__, LoggedIteration), zip(*columns, strict=False))  # a third of the time of a call


def _given(values: Array, kind: type[int | float]) -> Iterable[Any]:
    """The values, None for nan."""
    return repeat(None) if np.isnan(values).all() else [None if value != value else kind(value) for value in values]


def _between_epochs(records: Array, before: int, at: int, last: tuple[int, float]) -> list[tuple[int, float, float]]:
    """The lapse from the last line of an epoch, `before`, to the first of the next, and what iterations take of it at
    most: those that end the one are those left, no more than lie between the `last` two lines (their number and ms).
    """
    steps, ms = last
    number, left = int(records["number"][at]), records["left"][at]
    lapse_ms = float(records["s"][at] - records["s"][before]) * 1e3
    if not (records["goes_on"][at] and ms and lapse_ms > 0):
        return []
    ended = steps if np.isnan(left) else min(int(left), steps)
    trained_ms = ms / steps * (ended + min(number, steps))
    return [(number, lapse_ms, min(trained_ms, lapse_ms))]


def by_clock(records: Array) -> Timed:
    """Iterations of lines with only a clock, in spans long enough for its resolution."""
    timed = Timed(are_means=True)
    records = records[~np.isnan(records["s"])]
    numbers, s, grains_s, goes_on = (records[name].tolist() for name in ("number", "s", "grain_s", "goes_on"))
    rows, firsts = [], []  # of iterations, and of the line where their span begins
    anchor, last, since_epoch = -1, (0, 0.0), False  # `last`: iterations and ms between the last two lines
    for at, number in enumerate(numbers):
        if anchor < 0 or number <= numbers[anchor] or s[at] < s[anchor]:
            timed.lapses.extend(_between_epochs(records, anchor, at, last) if anchor >= 0 else ())
            anchor, since_epoch = at, goes_on[at]
        elif (span_s := s[at] - s[anchor]) >= GRAINS * max(grains_s[at], grains_s[anchor]):
            last = number - numbers[anchor], span_s * 1e3
            timed.lapses.append((number, span_s * 1e3, span_s * 1e3))
            rows.append(at)
            firsts.append((anchor, since_epoch))
            anchor, since_epoch = at, False
    of, first = records[rows], records[[row for row, _ in firsts]]
    steps = of["number"] - first["number"]
    of["goes_on"] = [is_first for _, is_first in firsts]
    grain_ms = (of["grain_s"] + first["grain_s"]) * 1e3 / steps
    timed.iterations = list(_iterations(of, (of["s"] - first["s"]) * 1e3 / steps, np.full(len(of), np.nan), grain_ms))
    return timed


def by_rate(records: Sequence[LoggedRecord]) -> Timed:
    """The mean time of iterations after the first of bars too short for their clock, by their rates.

    Where each rate is a mean since the bar began, as the clock shows, number and rate tell when each was drawn; else
    the last rate is that of its last iterations.
    """
    rated = [record for record in records if record.ms and record.number]
    if not rated:
        return Timed()
    first, last = rated[0], max(rated, key=lambda record: record.number)
    if last.number > first.number and all(_is_since_start(record) for record in rated):
        spent_ms = last.number * (last.ms or 0) - first.number * (first.ms or 0)
        error_ms = _LAST_DIGIT * last.number * (last.ms or 0)
        each_ms = spent_ms / (last.number - first.number)
        return Timed([LoggedIteration(last.number, each_ms)] if spent_ms >= GRAINS * error_ms else [])
    return Timed([LoggedIteration(last.number, last.ms or 0)])


def _is_since_start(bar: LoggedRecord) -> bool:
    """True for a bar whose rate gives its clock, which is cut to whole seconds."""
    return bar.clock is not None and 0 <= bar.number * (bar.ms or 0) / 1e3 - bar.clock.s < 1


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
        return [TimerReading(DATA, ms) for (ms,) in alone] if 2 * len(alone) > len(self._waits) else []

    def note_all(self, epochs: Array) -> Array:
        """The epoch that was named last at each of the next lines, which name these."""
        named = np.flatnonzero(epochs % 1 == 0)
        noted = np.concatenate(([np.nan if self.noted is None else self.noted], epochs[named]))
        self._is_new |= bool((noted[1:] != noted[:-1]).any())
        self.noted = float(noted[-1]) if len(named) else self.noted
        return noted[np.searchsorted(named, np.arange(len(epochs)), "right")]

    def has_begun(self) -> bool:
        """True on the first call after a line has named another epoch."""
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
        totals = [name for name in often if _of_the_run([line.times[name] for line in printed if name in line.times])]
        often = [name for name in often if name not in totals]
        if often and len(printed) <= _ONCE * (1 + _changes(printed)):
            longest = max(sorted(often), key=lambda name: median(x.times[name] for x in printed if name in x.times))
            timed = [LoggedRecord(x.number, x.times[longest], x.clock) for x in printed if longest in x.times]
            return _of_runs(by_lines(_in_order(timed)))
        clocked = [LoggedRecord(line.number, None, line.clock) for line in lines if line.clock]
        if not clocked and totals and not often:
            since = [(line.number, line.times[totals[0]] / 1e3) for line in printed if totals[0] in line.times]
            apart_s = [after - before for (_, before), (_, after) in pairwise(since)]
            if since[0][1] < 2 * median(apart_s):  # the first is of one epoch, with warm-up: no time that grows
                clocked = [LoggedRecord(number, None, Stamp(s, 0.0)) for number, s in since]
        return _of_runs(by_clock(_in_order(clocked)))


def _in_order(epochs: Sequence[LoggedRecord]) -> Array:
    records = table_of_records(epochs)
    records["s"] = on_their_days(records["s"])
    return once_each(records)


def _of_the_run(ms: Sequence[float]) -> bool:
    """True for times since the start."""
    return len(ms) >= FEWEST and rises(np.array(ms)) and ms[-1] >= 2 * ms[0]


def _of_runs(timed: Timed) -> Timed:
    """The epochs without the time that lies between runs, which the lines' clock holds as well."""
    usual_ms = median([one.mean_ms for one in timed.iterations]) if timed.iterations else 0.0
    timed.iterations = [one for one in timed.iterations if one.mean_ms <= _MOST_OF_USUAL * usual_ms]
    timed.lapses = [lapse for lapse in timed.lapses if lapse[1] <= _MOST_OF_USUAL * usual_ms]
    return timed


def _changes(lines: Sequence[_Epoch]) -> int:
    return sum(after.number != before.number for before, after in pairwise(lines))
