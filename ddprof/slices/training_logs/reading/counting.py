"""Counters of the lines of a loop: the one that rises, the epochs that they end, or their place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from statistics import median
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ddprof.slices.training_logs.reading.fields import MEAN
from ddprof.slices.training_logs.reading.kinds import Numbers, TimeKind, Times, preference
from ddprof.slices.training_logs.reading.lines import Stamp
from ddprof.tables import Array

L = TypeVar("L")
T = TypeVar("T")
FEWEST = 3  # lines with rising numbers, before text is taken for the log of a training


_ALIKE = 0.1  # relative: times since an epoch began, for each of its iterations; a time, against a wait beside it
_HALF = 0.5  # of the way from a time of one iteration, 0, to a mean, 1
_DAY_S, _OUT_OF_ORDER_S = 86400.0, 3600.0
MOST_FALLS = 0.1  # of the lines, between numbers that rise; of single times half are shorter than the one before


def rises(numbers: Array) -> bool:
    """True where nearly no number is below the one before."""
    return bool(np.count_nonzero(numbers[1:] < numbers[:-1]) <= MOST_FALLS * len(numbers))


class LoopLine(NamedTuple):
    """A line about an iteration: counters, its epoch, that of a heading above it, the rank that writes (None: unknown),
    its clock, times, waits.
    """

    counters: Numbers
    epoch: float | None
    under: float | None
    rank: int | None
    clock: Stamp | None
    times: Times
    waits: dict[str, float]


class LoopTable(NamedTuple):
    """Such lines in columns, nan where there is none. Counters, times and waits by key, as rows of the lines that have
    one and their values: number and that behind its slash; ms and the worth of the last digit; ms.
    """

    epoch: Array
    under: Array
    rank: Array
    clock_s: Array
    grain_s: Array
    counters: dict[str, tuple[Array, ...]]
    times: dict[tuple[TimeKind, str], tuple[Array, ...]]
    waits: dict[str, tuple[Array, ...]]

    @property
    def lines(self) -> int:
        """Number of lines."""
        return len(self.epoch)

    @property
    def plain(self) -> tuple[Array, ...]:
        """Columns with a value, or nan, for each line."""
        return self[:5]

    @property
    def keyed(self) -> tuple[dict[Any, tuple[Array, ...]], ...]:
        """Counters, times and waits."""
        return self.counters, self.times, self.waits

    def at(self, mask: Array) -> LoopTable:
        """The lines of a mask."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def take(self, lines: Array) -> LoopTable:
        """The lines of these numbers, in this order."""
        place = np.full(self.lines, -1)
        place[lines] = np.arange(len(lines))

        def taken(columns: dict[Any, tuple[Array, ...]]) -> dict[Any, tuple[Array, ...]]:
            of = {}
            for key, (rows, *values) in columns.items():
                order = np.argsort(place[rows], kind="stable")
                order = order[np.count_nonzero(place[rows] < 0) :]
                if len(order):
                    of[key] = (place[rows][order], *(value[order] for value in values))
            return of

        return _table((column[lines] for column in self.plain), map(taken, self.keyed))

    def part(self, begin: int, end: int) -> LoopTable:
        """Some lines of a table all of whose lines have all columns."""
        rows = np.arange(end - begin)
        of = (
            {key: (rows, *(value[begin:end] for value in values)) for key, (_, *values) in columns.items()}
            for columns in self.keyed
        )
        return _table((column[begin:end] for column in self.plain), of)

    def line(self, at: int) -> LoopLine:
        """One line."""
        plain = [None if np.isnan(column[at]) else float(column[at]) for column in self.plain]
        epoch, under, rank, clock_s, grain_s = plain
        of: list[dict[Any, list[Any]]] = [{}, {}, {}]
        for columns, into in zip(self.keyed, of, strict=True):
            for key, (rows, *values) in columns.items():
                row = int(np.searchsorted(rows, at))
                if row < len(rows) and rows[row] == at:
                    into[key] = [float(value[row]) for value in values]
        numbers = {key: (int(number), None if np.isnan(of) else of) for key, (number, of) in of[0].items()}
        clock = None if clock_s is None or grain_s is None else Stamp(clock_s, grain_s)
        times = {key: (ms, grain) for key, (ms, grain) in of[1].items()}
        waits = {key: ms for key, (ms,) in of[2].items()}
        return LoopLine(numbers, epoch, under, None if rank is None else int(rank), clock, times, waits)


def in_tables(parts: Iterable[Any], line: type[L], table_of_lines: Callable[[list[L]], T]) -> Iterator[T]:
    """The tables among the parts, and one for each run of lines between them."""
    for are_lines, some in groupby(parts, lambda part: isinstance(part, line)):
        group = list(some)
        yield from [table_of_lines(group)] if are_lines else group


def table_of(parts: Iterable[LoopLine | LoopTable]) -> LoopTable:
    """The table of lines and tables, one below the other."""
    tables = list(in_tables(parts, LoopLine, _of_lines))
    at = 0
    columns: list[dict[Any, list[tuple[Array, ...]]]] = [defaultdict(list) for _ in range(3)]
    for table in tables:
        for of, into in zip(table.keyed, columns, strict=True):
            for key, (rows, *values) in of.items():
                into[key].append((rows + at, *values))
        at += table.lines
    plain = zip(*(table.plain for table in tables), strict=True) if tables else [()] * 5
    joined = ({key: tuple(map(_joined, zip(*of, strict=True))) for key, of in into.items()} for into in columns)
    return _table(map(_joined, plain), joined)


def _table(plain: Iterable[Array], keyed: Iterable[dict[Any, tuple[Array, ...]]]) -> LoopTable:
    columns: list[Any] = [*plain, *keyed]
    return LoopTable(*columns)


def _joined(columns: Sequence[Array]) -> Array:
    return np.concatenate(columns) if columns else np.empty(0)


def _of_lines(lines: Sequence[LoopLine]) -> LoopTable:
    columns: list[dict[Any, list[tuple[Any, ...]]]] = [defaultdict(list) for _ in range(3)]
    for at, line in enumerate(lines):
        for key, number in line.counters.items():
            columns[0][key].append((at, *number))
        for of, time in line.times.items():
            columns[1][of].append((at, *time))
        for name, ms in line.waits.items():
            columns[2][name].append((at, ms))
    plain = [(line.epoch, line.under, line.rank, *(line.clock or (None, None))) for line in lines]
    numbers = ({key: _columns(of) for key, of in into.items()} for into in columns)
    return _table(np.array(plain, np.float64).T, numbers)


def _columns(cells: Sequence[tuple[Any, ...]]) -> tuple[Array, ...]:
    rows, *values = np.array(cells, np.float64).T
    return rows.astype(np.intp), *values


def with_time(table: LoopTable, kind: TimeKind, name: str) -> LoopTable:
    """The lines with such a time: bars print s/it, and it/s where that is more than one."""
    other = {TimeKind.EACH: TimeKind.RATE, TimeKind.RATE: TimeKind.EACH}.get(kind, kind)
    printed = np.full((2, table.lines), np.nan)
    for of in ((other, name), (kind, name)):
        if of in table.times:
            rows, *time = table.times[of]
            printed[:, rows] = time
    has_time = ~np.isnan(printed[0])
    ms, grain_ms = printed[:, has_time]
    return table.at(has_time)._replace(times={(kind, name): (np.arange(len(ms)), ms, grain_ms)})


def ended_at(table: LoopTable, counter: str) -> int:
    """The number that most lines count to, each in another epoch, as they are written at its end; 0 without one."""
    rows, numbers, _ = table.counters.get(
        counter or min(table.counters, key=preference, default=""), (np.empty(0),) * 3
    )
    if not len(numbers):
        return 0
    values, first, times = np.unique(numbers, return_index=True, return_counts=True)
    most = np.lexsort((first, -times))[0]
    number, often = int(values[most]), int(times[most])
    epochs = epoch_at(table)[rows[numbers == number]]
    apart = np.count_nonzero(epochs[1:] != epochs[:-1])
    is_so = 2 * often > table.lines and 2 * apart >= often >= FEWEST and not np.isnan(epochs).any()
    return number if is_so else 0


def epoch_at(table: LoopTable) -> Array:
    """The epoch of each line: its own, or that of the heading above it."""
    return np.where(np.isnan(table.epoch), table.under, table.epoch)


def since_epoch_began(numbers: Sequence[float], ms: Sequence[float]) -> list[float] | None:
    """Times of an iteration since the line before, where each of `ms` is the mean since its epoch began; None where
    they are not. Such a mean keeps of a first iteration beyond the usual as much as it has iterations; a time of one
    keeps nothing: what is nearer to the one decides.
    """
    starts = [at for at, (a, b) in enumerate(pairwise(numbers), 1) if b <= a]
    if len(starts) < FEWEST:
        return None
    first = int(min(numbers) == 0)
    steps = [number + first for number in numbers]
    spent = [time * of for time, of in zip(ms, steps, strict=True)]
    anew = {0, *starts}
    each = [
        time if at in anew else (spent[at] - spent[at - 1]) / (steps[at] - steps[at - 1]) for at, time in enumerate(ms)
    ]
    usual, kept, at_first = median(each), [], 0
    for at in range(len(ms)):
        at_first = at if at in anew else at_first
        if at != at_first and ms[at_first] >= 2 * usual > 0:
            kept.append((spent[at] - usual * steps[at]) / (spent[at_first] - usual * steps[at_first]))
    return each if kept and abs(median(kept) - 1) < _HALF and min(each) >= 0 else None


def by_means(table: LoopTable, counter: str, name: str) -> tuple[LoopTable, Array] | None:
    """The lines, and the time of an iteration since the line before (ms), both by the means since the epoch began that
    stand behind the times and waits of one iteration; None where the first iteration of an epoch, or the lines' clock,
    shows that they are no such means, where their last digit hides what is between two lines, and for several ranks.
    """
    again = np.diff(table.counters[counter][1], prepend=-1.0) == 0
    columns = [ms for _, ms, *_ in (*table.times.values(), *table.waits.values()) if len(ms) == table.lines]
    if any((ms != np.roll(ms, 1))[again].any() for ms in columns):
        return None  # lines of several ranks
    table = table.at(~again)  # some write each line twice
    rows, numbers, _ = table.counters[counter]
    steps = numbers + (numbers.min() == 0)
    apart = np.diff(steps, prepend=0.0)
    is_first = apart <= 0
    is_first[0] = True  # of its epoch
    apart = np.where(is_first, steps, apart)
    if len(rows) < FEWEST or not (apart > 1).any():
        return None

    def between(key: str) -> Array | None:
        at, ms = table.waits.get(key + MEAN, (np.empty(0), np.empty(0)))
        if len(at) < len(rows):
            return None
        spent = ms * steps
        each: Array = (spent - np.where(is_first, 0.0, np.roll(spent, 1))) / apart
        grain_ms = next(
            (10.0**-k for k in range(-3, 7) if np.allclose(ms * 10.0**k, np.rint(ms * 10.0**k), 0, 1e-6)), 0
        )
        is_fine = (grain_ms * steps / apart <= _ALIKE * np.median(each)).all()
        return each if is_fine and (each >= 0).all() else None

    ((_, single_ms, _),) = table.times.values()
    each_ms = between(name)
    if each_ms is None:
        return None
    of_one, (_, mean_ms) = steps == 1, table.waits[name + MEAN]
    spans_ms = np.diff(table.clock_s, prepend=np.nan) * 1e3 / apart
    clocked = ~np.isnan(spans_ms) & ~is_first
    is_so = of_one.any() and bool((mean_ms == single_ms)[of_one].all())
    if clocked.any():
        is_so = abs(each_ms[clocked].sum() / spans_ms[clocked].sum() - 1) <= _ALIKE
    waits = {key: of if (means := between(key)) is None else (rows, means) for key, of in table.waits.items()}
    return (table._replace(waits=waits), each_ms) if is_so else None


def are_since_epoch_began(numbers: Sequence[float], ms: Sequence[float]) -> bool:
    """True for times that are as many times longer as there are iterations in the epoch, however they are named."""
    first = int(min(numbers) == 0)
    run = [(number + first, time) for number, time in zip(numbers, ms, strict=True)][1:]
    if len(run) <= FEWEST or max(run)[0] < 2 * min(run)[0]:
        return False
    each = [time / number for number, time in run]
    return all(abs(time / median(each) - 1) <= _ALIKE for time in each) and median(each) > 0


def with_waits(table: LoopTable, counter: str, key: tuple[TimeKind, str]) -> LoopTable:
    """The lines with times that hold the wait for a batch, where one that is shorter than the wait beside it shows that
    it is left out. Means may be shorter, and are not told apart but where each iteration has its line.
    """
    numbers = table.counters[counter][1] if counter else np.empty(0)
    is_of_one = len(numbers) > 1 and key[0] in (TimeKind.ONE, TimeKind.ANY) and bool((np.diff(numbers) == 1).all())
    waits = [of for name, of in table.waits.items() if not name.endswith(MEAN)]
    if not is_of_one or len(waits) != 1 or not np.isnan(table.clock_s).all():
        return table
    ((waited, waits_ms),) = waits
    rows, ms, grain_ms = table.times[key]
    wait_ms = np.zeros(table.lines)
    wait_ms[waited] = waits_ms
    if not (wait_ms[rows] > (1 + _ALIKE) * ms)[1:].any() or np.median(wait_ms) > np.median(ms):
        return table
    return table._replace(times={key: (rows, ms + wait_ms[rows], grain_ms)})


def by_epochs(table: LoopTable, ended: int) -> LoopTable:
    """Lines with a number of their own: of the epoch that each ends, after `ended` iterations, or of their place."""
    epochs = epoch_at(table)
    if ended:
        counts = np.zeros(table.lines, bool)
        for rows, numbers, _ in table.counters.values():
            counts[rows[numbers == ended]] = True
        counts &= ~np.isnan(epochs)
        return _numbered(table.at(counts), np.floor(epochs[counts]) * ended)
    rise = not np.isnan(epochs).any() and 2 * np.count_nonzero(epochs[1:] != epochs[:-1]) >= table.lines  # once in each
    nowhere = np.full(table.lines, np.nan)  # how many iterations lie between is not known; one or all may be timed
    numbers = np.floor(epochs) if rise else np.arange(1.0, table.lines + 1)
    return _numbered(table._replace(clock_s=nowhere, grain_s=nowhere), numbers)


def _numbered(table: LoopTable, numbers: Array) -> LoopTable:
    return table._replace(counters={"": (np.arange(table.lines), numbers, np.full(table.lines, np.nan))})


def on_their_days(clock_s: Array) -> Array:
    """Clock readings in order, those without a date on the next day where they fall by more than writers are apart."""
    undated = clock_s < _DAY_S
    s = clock_s[undated]
    days = np.cumsum(np.diff(s, prepend=s[:1]) < -_OUT_OF_ORDER_S)
    after = clock_s.copy()
    after[undated] = s + _DAY_S * days
    return after


def of_training(table: LoopTable) -> LoopTable:
    """Lines that name an epoch, or name none, as most do: others are of settings or an evaluation."""
    names_epoch = ~np.isnan(table.epoch)
    return table.at(names_epoch == (2 * np.count_nonzero(names_epoch) >= table.lines))


def counted_by(table: LoopTable) -> tuple[LoopTable, str]:
    """Lines with a counter, and which: by its name, of those that rise; all lines and "" where none does."""
    rising: dict[str, tuple[int, int]] = {}  # how often, and where first
    counts = np.zeros(table.lines, bool)
    for key, (rows, numbers, _) in table.counters.items():
        above = np.flatnonzero(numbers[1:] > numbers[:-1])
        if len(above):
            rising[key] = len(above), int(rows[above[0] + 1])
            counts[rows] = True
    common = [key for key in rising if 2 * len(table.counters[key][0]) >= np.count_nonzero(counts)]
    counter = min(common, key=lambda key: (preference(key), -rising[key][0], rising[key][1]), default="")
    if counter:
        counts[:] = False
        counts[table.counters[counter][0]] = True
    return (table.at(counts) if counter else table), counter
