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
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from statistics import median

from ddprof.readers.numbers import one_rank
from ddprof.slices.training_logs.model import DATA, RankReading, TimerReading
from ddprof.slices.training_logs.reading.counting import (
    FEWEST,
    MOST_FALLS,
    LoopLine,
    are_since_epoch_began,
    by_epochs,
    counted_by,
    ended_at,
    epoch_at,
    of_training,
    rises,
    since_epoch_began,
    with_time,
    with_waits,
)
from ddprof.slices.training_logs.reading.fields import value_at
from ddprof.slices.training_logs.reading.iterations import NOWHERE, LoggedRecord, stride
from ddprof.slices.training_logs.reading.kinds import (
    PLACES,
    Numbers,
    TimeKind,
    clock_at,
    is_counter,
    numbers_of,
    times_at,
)
from ddprof.slices.training_logs.reading.lines import LogLine, Stamp, stamp_at
from ddprof.slices.training_logs.reading.shapes import LoopShape, loop_shape
from ddprof.slices.training_logs.reading.times import GRAINS, EpochLines

WRITER = "lines of a training loop"
_DAY_S, _OUT_OF_ORDER_S = 86400.0, 3600.0
# Single times in rising order are as rare as 1 in 40,000 for so many lines.
_FEWEST_RISING = 8
_MOST_RUN_MS = 118 * 864e5  # BLOOM's days (arXiv 2211.05100), the longest run of those that published theirs
_ALIKE = 0.1  # relative: times as printed, against the clock of their lines
_STEADY = 0.2  # relative, from decile to decile: a ratio that is the same in all lines
# "|    time_elapsed    | 23       |" of Stable-Baselines3 and its forebears
_VALUE = re.compile(r"\|\s{1,20}(?P<name>[\w/ ]{1,40}?)\s{1,40}\|\s{1,20}(?P<value>\d[\d.e+-]{0,20})\s{1,40}\|\s*$")
_CELLS, _CELL = re.compile(r"\s*[,;|\t]\s*|\s{2,}"), re.compile(r"-?\d[\d.eE+-]*|nan|-")


class LoopLines:
    """Collects such lines of one log."""

    def __init__(self) -> None:
        self._timed: list[LoopLine] = []
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
        self._undated_s = self._days_s = 0.0  # of a clock without a date: where it was, and what passed in days
        self._explicit = 0  # lines with a time of one iteration
        self.epochs = EpochLines()
        self.in_epoch = 0  # iterations that the lines count to in each epoch, once `times` is asked; 0: unknown
        self.are_means = False  # of the iterations since the line before, once `times` is asked

    def take(self, line: LogLine) -> bool:
        """Read the next line; True where it is of an iteration."""
        return self.take_text(line.prefix + line.text, line.who)

    def take_text(self, text: str, who: str, shape: LoopShape | None = None) -> bool:
        """Read the whole text of the next line, of a shape that may be known."""
        if text.startswith("|") and (row := _VALUE.match(text)) is not None:
            return self._of_table(row["name"], row["value"])
        if shape is None or self._columns:
            shape = loop_shape(text := self._row(text), who)
        if shape.is_bar:
            return False
        stamp = stamp_at(text, shape.stamps)
        if stamp is not None and stamp.s < _DAY_S:
            stamp = self._on_its_day(stamp)
        epoch = value_at(text, shape.epoch.spans) if shape.epoch else None
        clock = (clock_at(text, shape.clocks) if shape.clocks else None) or stamp
        self.epochs.note(epoch)
        if shape.evaluates:
            self._head.pop(who, None)
            return False
        counters = numbers_of(text, shape.counters)
        times, waits = times_at(text, shape.timed)
        rank = one_rank(text[slice(*shape.rank)]) if shape.rank != NOWHERE else None
        if not counters:
            self.epochs.take(shape.bare, epoch, clock, times)
            self.epochs.note_wait(sum(waits.values()))
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
        return self.take_text(f"train {said}", "")

    def _on_its_day(self, stamp: Stamp) -> Stamp:
        """A clock without a date, which midnight sets back; lines of other writers are a little out of order."""
        s = stamp.s + self._days_s
        if s < self._undated_s - _OUT_OF_ORDER_S:
            self._days_s += _DAY_S
            s += _DAY_S
        self._undated_s = s
        return Stamp(s, stamp.grain_s)

    @property
    def reads_on(self) -> bool:
        """True where the next line may be a row of a table."""
        return bool(self._columns)

    def _row(self, text: str) -> str:
        """The line or, of a row below a table's head, its cells with their names."""
        has_digit = any(map(str.isdigit, text))
        if has_digit and not self._columns:
            return text
        cells = [cell for cell in _CELLS.split(text.strip(" |\r")) if cell]
        if self._columns and len(cells) == len(self._columns) and all(_CELL.fullmatch(cell) for cell in cells):
            return ", ".join(f"{name}: {cell}" for name, cell in zip(self._columns, cells, strict=True))
        names = cells if len(cells) >= FEWEST and not has_digit else []
        is_head = "loss" in text.lower() and any(is_counter(name.strip().lower().replace("_", " ")) for name in names)
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

    def times(self) -> tuple[list[LoggedRecord], list[TimerReading], list[RankReading]]:
        """The iterations, and the time that each waited for its batch, on each rank that says it."""
        apart = [lines for lines in self._apart if 2 * len(lines) >= self._heads]
        (kind, name), lines = min(
            ((_choice(lines), lines) for lines in map(of_training, (self._timed, *apart))),
            key=lambda of: (of[0][0], -len(of[1])),
        )
        if kind is TimeKind.NONE:
            lines = of_training(self._clocked)
        counted, counter = counted_by(lines)
        if kind is TimeKind.NONE:
            return [], *(_waits(counted, counter, math.inf) if counter else ([], []))
        lines = [timed for line in counted if (timed := with_time(line, kind, name)) is not None]
        ended = ended_at(lines, counter)
        if not ended and (not self.is_training or (not counter and kind > TimeKind.RATE)):
            return [], [], []
        if ended or not counter:
            counter, lines = "", list(by_epochs(lines, ended))
        if not lines:
            return [], [], []
        lines = with_waits(lines, counter, (kind, name))
        ms = [line.times[kind, name][0] for line in lines]
        numbers = [line.counters[counter][0] for line in lines]
        if kind is TimeKind.MEAN or _are_totals(ms, kind):
            return _since_the_start(lines, counter, (kind, name)), *_waits(lines, counter, median(ms))
        if are_since_epoch_began(numbers, ms):
            return _since_the_start(lines, counter, (kind, name)), [], []
        if not any(line.clock for line in lines) and (each := since_epoch_began(numbers, ms)) is not None:
            self.are_means = True
            return list(_records(lines, counter, each)), *_waits(lines, counter, median(ms))
        holds, parts, samples = _by_clock(lines, counter, numbers, ms)
        if not holds and kind is TimeKind.UNNAMED:  # of something else
            return list(_records(lines, counter, [None] * len(lines))), [], []
        self.are_means = kind in (TimeKind.EACH, TimeKind.RATE) or "cost" in name or max(holds, ended) > 1
        times_ms = [time / ((holds or 1) * parts) for time in ms]
        (of, often), *_ = Counter(line.counters[counter][1] for line in lines).most_common(1)
        again = sum(after < before for before, after in pairwise(numbers))
        self.in_epoch = int(of) if of and again and often == len(lines) and holds == 1 else 0
        waits = _waits(lines, counter, median(ms), parts)
        return list(_records(lines, counter, times_ms, samples)), *waits

    def clocked(self) -> list[LoggedRecord]:
        """The iterations of lines that hold no time, by their clock."""
        lines, counter = counted_by(of_training(self._clocked))
        return list(_records(lines, counter, [None] * len(lines))) if self.is_training and counter else []


def _choice(lines: Sequence[LoopLine]) -> tuple[TimeKind, str]:
    """Kind and name of the time that lines print; of several of a kind the longest, which holds the others."""
    printed = Counter(key for line in lines for key in line.times)
    often = [key for key in printed if 2 * printed[key] >= len(lines)]

    def place(key: tuple[TimeKind, str]) -> tuple[TimeKind, bool, float]:
        kind, name = key
        ms = [line.times[key][0] for line in lines if key in line.times]
        of_iteration = kind is TimeKind.ALL and not (rises(ms) and ms[-1] > ms[0])  # the total of an iteration's parts
        return TimeKind.ONE if of_iteration else kind, not name.startswith("last"), -median(ms)

    return min(often, key=place, default=(TimeKind.NONE, ""))


def _are_totals(ms: Sequence[float], kind: TimeKind) -> bool:
    """True for times since the start: they rise from line to line, to twice the first and more where the name does not
    say it, but where the clock starts again (after warm-up, in each epoch).
    """
    runs = [[ms[0]]]
    for shorter, longer in pairwise(ms):
        if longer < shorter:
            runs.append([])
        runs[-1].append(longer)
    longest = max(runs, key=len)
    is_longer = longest[-1] > longest[0] if kind is TimeKind.ALL else longest[-1] >= 2 * longest[0]
    if len(longest) < _FEWEST_RISING:
        return kind is TimeKind.ALL and rises(ms) and ms[-1] > ms[0]
    return is_longer and len(runs) - 1 <= MOST_FALLS * len(ms)


def _since_the_start(lines: Sequence[LoopLine], counter: str, key: tuple[TimeKind, str]) -> list[LoggedRecord]:
    """Records whose clock is the time since the start, as printed or from its mean, but where the lines' is finer."""
    grain_ms = max(line.times[key][1] for line in lines)
    if all(line.clock and line.clock.grain_s * 1e3 < grain_ms for line in lines):
        return list(_records(lines, counter, [None] * len(lines)))
    timed = []
    for line in lines:
        of = line.counters[counter][0] if key[0] is TimeKind.MEAN else 1
        ms, grain = line.times[key]
        timed.append(line._replace(clock=Stamp(ms * of / 1e3, grain * of / 1e3)))
    return list(_records(timed, counter, [None] * len(timed)))


def _by_clock(
    lines: Sequence[LoopLine], counter: str, numbers: Sequence[int], ms: Sequence[float]
) -> tuple[int, float, int]:
    """(iterations that a printed time holds, parts of a second that it counts, counts of one iteration), by the lines'
    clock: no iterations where nothing fits. Without a clock a time is of all iterations since the line before where
    times of one would be a longer run than any.
    """
    each = stride(numbers)
    clocks = [line.clock for line in lines]
    grain_s = max((clock.grain_s for clock in clocks if clock), default=0.0)
    spans = [
        (b.s - a.s, after - before, time / 1e3)
        for (a, b), (before, after), time in zip(pairwise(clocks), pairwise(numbers), ms[1:], strict=True)
        if a and b and b.s > a.s and after > before
    ]
    ratios, span_s, held_s = [], 0.0, 0.0
    for span, steps, time in spans:
        span_s, held_s = span_s + span, held_s + time * steps
        if span_s >= GRAINS * grain_s:
            ratios.append(held_s / span_s)
            span_s = held_s = 0.0
    if not ratios:
        is_whole_run = not any(clocks) and each * sum(ms) > _MOST_RUN_MS
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


def _outlasts(lines: Sequence[LoopLine], numbers: Sequence[int], ms: Sequence[float]) -> bool:
    """True for times that are longer, each, than all lines lie apart: they count parts of a second."""
    first, last = lines[0].clock, lines[-1].clock
    if first is None or last is None or len(lines) < FEWEST or numbers[-1] <= numbers[0]:
        return False
    span_s, grain_s = last.s - first.s, last.grain_s + first.grain_s
    spent_s = (numbers[-1] * ms[-1] - numbers[0] * ms[0]) / 1e3  # of means since the start, which may be longer, too
    are_means = abs(spent_s - span_s) <= _ALIKE * span_s + grain_s
    return grain_s < span_s < min(ms[1:]) / 1e3 - grain_s and not are_means


def _records(
    lines: Sequence[LoopLine], counter: str, ms: Sequence[float | None], samples: int = 1
) -> Iterator[LoggedRecord]:
    before: LoopLine | None = None
    for line, time in zip(lines, ms, strict=True):
        number, _ = line.counters[counter]
        goes_on, left = False, None
        ended = None if before is None else epoch_at(before)
        if before is not None and ended is not None and number < (last := before.counters[counter][0]):
            goes_on = epoch_at(line) == ended + 1
            of = next((of for at, of in before.counters.values() if at == last and of is not None), None)
            left = max(0, int(of) - last) // samples if goes_on and of is not None else None
        if time is None or time > 0:
            yield LoggedRecord(number // samples, time, line.clock, goes_on=goes_on, left=left)
        before = line


def _waits(
    lines: Sequence[LoopLine], counter: str, most_ms: float, parts: float = 1
) -> tuple[list[TimerReading], list[RankReading]]:
    """Time until the batch is there: one reading an iteration, of all ranks that write, and each rank's own. The first
    line of each epoch is left out, as it is of the iterations: there the workers start.
    """
    printed: dict[str, list[float]] = {}
    for line in lines:
        for name, ms in line.waits.items():
            printed.setdefault(name, []).append(ms)
    # No wait is longer than its iteration: such a time is of a worker.
    often = [name for name, ms in printed.items() if 2 * len(ms) >= len(lines) and median(ms) <= most_ms]
    data = min(often, key=lambda name: ("last" not in name, "wait" not in name), default="")
    lines = lines if data else []
    ranks = {line.rank for line in lines}
    times: list[dict[int | None, float]] = []
    starts: set[int] = set()
    before = -1
    for line in lines:
        number, _ = line.counters[counter]
        if number != before or line.rank in times[-1]:
            if number < before:
                starts.add(len(times))
            times.append({})
            before = number
        if data in line.waits and len(times) - 1 not in starts:
            times[-1][line.rank] = line.waits[data] / parts
    is_of_ranks = len(ranks) > 1 and None not in ranks
    readings = [
        TimerReading(DATA, block, max(of.values()), min(of.values()) if is_of_ranks else None, is_of_ranks)
        for block, of in enumerate(times)
        if of
    ]
    return readings, [
        RankReading(DATA, block, rank, ms)
        for block, of in enumerate(times)
        for rank, ms in of.items()
        if is_of_ranks and rank is not None
    ]
