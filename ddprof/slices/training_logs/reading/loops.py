"""Iterations of any loop from the numbers of its lines: what counts, what is its time, and of what that is.

Epoch: [0]  [  10/5004]  eta: 0:41:15  lr: 0.1  loss: 7.1 (7.1)  time: 0.4961  data: 0.2560  max mem: 5432
Epoch: [0][  10/5005]   Time  0.412 ( 0.713)   Data  0.010 ( 0.301)   Loss 7.0 (7.0)
iter 120: loss 3.2150, time 251.12ms, mfu 38.40%
step:10/2160 train_time:463ms step_avg:46.25ms
[batch=12/4800]:
         Train throughput/batches_per_sec: 2.41

A counter has the name of one, or stands in brackets, and rises. Of several times one of an iteration, by its unit or
its name, comes before any other, and the whole before its parts. A name does not say whether a time is of one
iteration, of all since the line before or since the start, or a mean: its course tells, and the lines' clock.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import product
from statistics import median

import numpy as np

from ddprof.readers.numbers import one_rank
from ddprof.slices.training_logs.model import RankReading, TimerReading
from ddprof.slices.training_logs.reading.counting import (
    FEWEST,
    MOST_FALLS,
    LoopLine,
    LoopTable,
    are_since_epoch_began,
    by_epochs,
    by_means,
    counted_by,
    ended_at,
    epoch_at,
    of_training,
    on_their_days,
    rises,
    since_epoch_began,
    table_of,
    with_time,
    with_waits,
)
from ddprof.slices.training_logs.reading.fields import value_at
from ddprof.slices.training_logs.reading.iterations import records_table, stride
from ddprof.slices.training_logs.reading.kinds import (
    PLACES,
    Numbers,
    TimeKind,
    clock_at,
    is_counter,
    numbers_of,
    times_at,
    waited_ms,
)
from ddprof.slices.training_logs.reading.lines import NOWHERE, stamp_at
from ddprof.slices.training_logs.reading.shapes import LoopShape, loop_shape
from ddprof.slices.training_logs.reading.times import GRAINS, EpochLines
from ddprof.slices.training_logs.reading.waits import waits_of
from ddprof.tables import Array

WRITER = "lines of a training loop"
# Single times in rising order are as rare as 1 in 40,000 for so many lines.
_FEWEST_RISING = 8
_MOST_RUN_MS = 118 * 864e5  # BLOOM's days (arXiv 2211.05100), the longest run of those that published theirs
_ALIKE = 0.1  # relative: times as printed, against the clock of their lines
_STEADY = 0.2  # relative, from decile to decile: a ratio that is the same in all lines
# "|    time_elapsed    | 23       |" of Stable-Baselines3 and its forebears
_VALUE = re.compile(r"\|\s{1,20}(?P<name>[\w/ ]{1,40}?)\s{1,40}\|\s{1,20}(?P<value>\d[\d.e+-]{0,20})\s{1,40}\|\s*$")
_CELLS, _CELL = re.compile(r"\s*[,;|\t]\s*|\s{2,}"), re.compile(r"-?\d[\d.eE+-]*|nan|-")
_NUMBER = re.compile(r"(?<![\w/@.-])\d")  # no part of a name, as of a metric at 50 %


class LoopLines:
    """Collects such lines of one log."""

    def __init__(self) -> None:
        self._timed: list[LoopLine | LoopTable] = []
        # Whose time stands in a line below, above the counter's
        self._apart: tuple[list[LoopLine], list[LoopLine]] = [], []
        self._above: LoopLine | None = None
        self._trains = False
        self._clocked: list[LoopLine] = []  # without a time
        self._head: dict[str, LoopLine] = {}  # writer -> its last line with a counter
        self._heads = 0
        self._last: dict[str, int] = {}
        self._rising: Counter[str] = Counter()
        self._columns: list[str] = []  # of a table whose rows follow
        self._values: dict[str, str] = {}  # of a table with a row for each
        self._explicit = 0  # lines with a time of one iteration
        self.epochs = EpochLines()
        self.in_epoch = 0  # iterations that the lines count to in each epoch, once `times` is asked; 0: unknown
        self.are_means = False  # of the iterations since the line before, once `times` is asked

    def take(self, text: str, who: str, shape: LoopShape | None = None) -> bool:
        """Read the whole text of the next line, of a shape that may be known; True where it is of an iteration."""
        if text.startswith("|") and (row := _VALUE.match(text)) is not None:
            return self._of_table(row["name"], row["value"])
        if shape is None or self._columns or not (shape.counters or shape.timed):
            given, text = text, self._row(text)
            shape = loop_shape(text, who) if shape is None or text is not given else shape
        if shape.is_bar:
            return False
        epoch = value_at(text, shape.epoch.spans) if shape.epoch else None
        clock = (clock_at(text, shape.clocks) if shape.clocks else None) or stamp_at(text, shape.stamps)
        self.epochs.note(epoch)
        if shape.evaluates:
            self._head.pop(who, None)
            return False
        counters = numbers_of(text, shape.counters)
        times, waits = times_at(text, shape.timed)
        rank = one_rank(text[slice(*shape.rank)]) if shape.rank != NOWHERE else None
        if not counters:
            self.epochs.take(shape.bare, epoch, clock, times)
            self.epochs.note_wait(waited_ms(waits))
        of_steps = {key: time for key, time in times.items() if key[0] is not TimeKind.EPOCH}
        line_read = LoopLine(counters, epoch, self.epochs.noted, rank, clock, of_steps, waits)
        return self._note(who, line_read, shape.trains)

    def _note(self, who: str, line: LoopLine, trains: bool) -> bool:
        times, counters = line.times, line.counters
        is_explicit = bool(times) and any(kind <= TimeKind.RATE for kind, _ in times)
        self._trains |= trains
        # What names an epoch is of that, and of no iteration that the line beside it counts
        above, self._above = self._above, line if times and not counters and line.epoch is None else None
        if not counters and (who in self._head or not (trains and is_explicit)):
            return self._is_below(who, line)
        if counters:
            self._head[who], self._heads = line, self._heads + 1
        risen = above is not None and bool(counters) and not times and self._join(above, line, 1)
        if not trains:
            return risen
        if times:
            self._timed.append(line)
        elif line.clock is not None:
            self._clocked.append(line)
        else:
            return risen
        self._explicit += is_explicit
        return self._count(counters) or risen or bool(times)  # a line of settings counts nothing

    def _of_table(self, name: str, value: str) -> bool:
        """Take a row of a table that has one for each value: the rows before it are a line where a name comes again."""
        if name not in self._values:
            self._values[name] = value
            return False
        said = ", ".join(f"{of}: {at}" for of, at in self._values.items())
        self._values = {name: value}
        return self.take(f"train {said}", "")

    @property
    def reads_on(self) -> bool:
        """True where the next line may be a row of a table."""
        return bool(self._columns)

    def _row(self, text: str) -> str:
        """The line or, of a row below a table's head, its cells with their names."""
        has_number = _NUMBER.search(text) is not None
        if has_number and not self._columns:
            return text
        cells = [cell for cell in _CELLS.split(text.strip(" |\r")) if cell]
        if self._columns and len(cells) == len(self._columns) and all(_CELL.fullmatch(cell) for cell in cells):
            return ", ".join(f"{name}: {cell}" for name, cell in zip(self._columns, cells, strict=True))
        names = cells if len(cells) >= FEWEST and not has_number else []
        named = [name.strip().lower().replace("_", " ") for name in names]
        is_head = "loss" in text.lower() and any(name == "epoch" or is_counter(name) for name in named)
        self._columns = names if is_head else []
        return text

    def _is_below(self, who: str, line: LoopLine) -> bool:
        if not line.times or line.epoch is not None or (head := self._head.pop(who, None)) is None:
            return False
        return self._join(line, head, 0)

    def _join(self, timed: LoopLine, head: LoopLine, at: int) -> bool:
        """Take the times of one line and the counters of the line above it (`at` 0) or below (1)."""
        self._explicit += any(kind <= TimeKind.RATE for kind, _ in timed.times)
        self._apart[at].append(head._replace(clock=timed.clock or head.clock, times=timed.times, waits=timed.waits))
        return self._count(head.counters)

    def _count(self, counters: Numbers) -> bool:
        """True where a counter has risen."""
        is_risen = False
        for key, (number, _) in counters.items():
            if number > self._last.get(key, number):
                self._rising[key] += 1
                is_risen = True
            self._last[key] = number
        return is_risen

    @property
    def is_training(self) -> bool:
        """True where enough lines follow one another."""
        return self._trains and (max(self._rising.values(), default=0) >= FEWEST - 1 or self._explicit >= FEWEST)

    def take_all(self, lines: LoopTable, last: dict[str, int]) -> None:
        """Read lines of a training that have counters and times, and are the next; the `last` of each writer."""
        self._trains, self._above = True, None
        self._heads += lines.lines
        explicit = [rows for (kind, _), (rows, *_) in lines.times.items() if kind <= TimeKind.RATE]
        self._explicit += len(set().union(*(rows.tolist() for rows in explicit)))
        lines = lines._replace(under=self.epochs.note_all(lines.epoch))
        self._timed.append(lines)
        self._head.update({who: lines.line(at) for who, at in last.items()})
        for key, (_, numbers, _) in lines.counters.items():
            self._rising[key] += int(np.count_nonzero(np.diff(numbers, prepend=self._last.get(key, numbers[0])) > 0))
            self._last[key] = int(numbers[-1])

    def times(self) -> tuple[Array, list[TimerReading], list[RankReading]]:
        """The iterations, and the time that each waited for its batch, on each rank that says it."""
        apart = [lines for lines in self._apart if 2 * len(lines) >= self._heads]
        tables = [_of_training(self._timed), *map(_of_training, apart)]
        (kind, name), lines = min(((_choice(of), of) for of in tables), key=lambda of: (of[0][0], -of[1].lines))
        none: tuple[Array, list[TimerReading], list[RankReading]] = records_table([]), [], []
        if kind is TimeKind.NONE:
            lines = _of_training(self._clocked)
        lines, counter = counted_by(lines)
        if kind is TimeKind.NONE:
            return (none[0], *waits_of(lines, counter, math.inf)) if counter else none
        lines = with_time(lines, kind, name)
        ended = ended_at(lines, counter)
        if not ended and (not self.is_training or (not counter and kind > TimeKind.RATE)):
            return none
        if ended or not counter:
            counter, lines = "", by_epochs(lines, ended)
        if not lines.lines:
            return none
        lines = with_waits(lines, counter, (kind, name))
        _, ms, _ = lines.times[kind, name]
        _, numbers, ends = lines.counters[counter]
        if kind is TimeKind.MEAN or _are_totals(ms, kind):
            return _since_the_start(lines, counter, (kind, name)), *waits_of(lines, counter, float(np.median(ms)))
        if are_since_epoch_began(numbers.tolist(), ms.tolist()):
            return _since_the_start(lines, counter, (kind, name)), [], []
        if (by := by_means(lines, counter, name)) is not None:
            self.are_means = True
            lines, each_ms = by
            return _records(lines, counter, each_ms), *waits_of(lines, counter, float(np.median(each_ms)))
        if np.isnan(lines.clock_s).all() and (each := since_epoch_began(numbers.tolist(), ms.tolist())) is not None:
            self.are_means = True
            return _records(lines, counter, np.array(each)), *waits_of(lines, counter, float(np.median(ms)))
        holds, parts, samples = _by_clock(lines, counter, numbers, ms)
        if not holds and kind is TimeKind.UNNAMED:  # of something else
            return _records(lines, counter), [], []
        self.are_means = kind in (TimeKind.EACH, TimeKind.RATE) or "cost" in name or max(holds, ended) > 1
        again = (numbers[1:] < numbers[:-1]).any()
        self.in_epoch = int(ends[0]) if ends[0] > 0 and again and (ends == ends[0]).all() and holds == 1 else 0
        waits = waits_of(lines, counter, float(np.median(ms)), parts)
        return _records(lines, counter, ms / ((holds or 1) * parts), samples), *waits

    def clocked(self) -> Array:
        """The iterations of lines that hold no time, by their clock."""
        lines, counter = counted_by(_of_training(self._clocked))
        return _records(lines, counter) if self.is_training and counter else records_table([])


def _of_training(parts: Sequence[LoopLine | LoopTable]) -> LoopTable:
    table = table_of(parts)
    return of_training(table._replace(clock_s=on_their_days(table.clock_s)))


def _choice(lines: LoopTable) -> tuple[TimeKind, str]:
    """Kind and name of the time that lines print; of several of a kind the longest, which holds the others."""
    often = [key for key, (rows, *_) in lines.times.items() if 2 * len(rows) >= lines.lines]

    def place(key: tuple[TimeKind, str]) -> tuple[TimeKind, bool, float]:
        (kind, name), (_, ms, _) = key, lines.times[key]
        of_iteration = kind is TimeKind.ALL and not (rises(ms) and ms[-1] > ms[0])  # the total of an iteration's parts
        return TimeKind.ONE if of_iteration else kind, not name.startswith("last"), -float(np.median(ms))

    return min(often, key=place, default=(TimeKind.NONE, ""))


def _are_totals(ms: Array, kind: TimeKind) -> bool:
    """True for times since the start: they rise, to twice the first if not named so, but for restarts."""
    starts = np.flatnonzero(np.diff(ms, prepend=np.inf) < 0)
    lengths = np.diff(starts, append=len(ms))
    longest = int(np.argmax(lengths))
    first, last = ms[starts[longest]], ms[starts[longest] + lengths[longest] - 1]
    if lengths[longest] < _FEWEST_RISING:
        return kind is TimeKind.ALL and rises(ms) and bool(ms[-1] > ms[0])
    is_longer = last > first if kind is TimeKind.ALL else last >= 2 * first
    return bool(is_longer and len(starts) - 1 <= MOST_FALLS * len(ms))


def _since_the_start(lines: LoopTable, counter: str, key: tuple[TimeKind, str]) -> Array:
    """Records whose clock is the time since the start, as printed or from its mean, but where the lines' is finer."""
    _, ms, grain_ms = lines.times[key]
    if not (lines.grain_s * 1e3 < grain_ms.max()).all():
        of = lines.counters[counter][1] if key[0] is TimeKind.MEAN else 1
        lines = lines._replace(clock_s=ms * of / 1e3, grain_s=grain_ms * of / 1e3)
    return _records(lines, counter)


def _by_clock(lines: LoopTable, counter: str, numbers: Array, ms: Array) -> tuple[int, float, int]:
    """(iterations that a printed time holds, parts of a second that it counts, counts of one iteration), by the lines'
    clock: no iterations where nothing fits. Without a clock a time is of all iterations since the line before where
    times of one would be a longer run than any.
    """
    each, has_clock = stride(numbers), ~np.isnan(lines.clock_s)
    grain_s = lines.grain_s[has_clock].max(initial=0.0)
    apart_s, steps = np.diff(lines.clock_s), np.diff(numbers)
    spans = (apart_s > 0) & (steps > 0)
    ratios, span_s, held_s = [], 0.0, 0.0
    for span, held in zip(apart_s[spans].tolist(), (ms[1:] / 1e3 * steps)[spans].tolist(), strict=True):
        span_s, held_s = span_s + span, held_s + held
        if span_s >= GRAINS * grain_s:
            ratios.append(held_s / span_s)
            span_s = held_s = 0.0
    if not ratios:
        is_whole_run = not has_clock.any() and each * ms.sum() > _MOST_RUN_MS
        return (each if is_whole_run else 1), (1e3 if _outlasts(lines, numbers, ms) else 1), 1
    ratios.sort()
    for parts, holds in product((1, 1e3), (1, each)):  # a time without a unit may be ms
        if abs(median(ratios) / (parts * holds) - 1) <= _ALIKE:
            return holds, parts, 1
    if counter not in PLACES:
        return 0, 1, 1
    tenth = len(ratios) // 10
    is_steady = len(ratios) >= FEWEST and ratios[-1 - tenth] <= ratios[tenth] * (1 + _STEADY)
    return (1, 1, max(1, round(median(ratios)))) if is_steady else (0, 1, 1)  # it counts samples


def _outlasts(lines: LoopTable, numbers: Array, ms: Array) -> bool:
    """True for times that are longer, each, than all lines lie apart: they count parts of a second."""
    if lines.lines < FEWEST or numbers[-1] <= numbers[0]:
        return False
    span_s, grain_s = lines.clock_s[-1] - lines.clock_s[0], lines.grain_s[-1] + lines.grain_s[0]
    spent_s = (numbers[-1] * ms[-1] - numbers[0] * ms[0]) / 1e3  # of means since the start, which may be longer, too
    are_means = abs(spent_s - span_s) <= _ALIKE * span_s + grain_s
    return bool(grain_s < span_s < ms[1:].min() / 1e3 - grain_s and not are_means)  # of a clock


def _records(lines: LoopTable, counter: str, ms: Array | None = None, samples: int = 1) -> Array:
    _, numbers, _ = lines.counters[counter]
    table = records_table(
        (numbers // samples).astype(np.int64), np.nan if ms is None else ms, (lines.clock_s, lines.grain_s)
    )
    epochs = epoch_at(lines)
    for at in np.flatnonzero((numbers[1:] < numbers[:-1]) & (epochs[1:] == epochs[:-1] + 1)).tolist():
        last = int(numbers[at])
        ends = lines.line(at).counters.values()
        of = next((of for number, of in ends if number == last and of is not None), None)
        table["goes_on"][at + 1] = True
        table["left"][at + 1] = np.nan if of is None else max(0, int(of) - last) // samples
    return table if ms is None else table[ms > 0]
