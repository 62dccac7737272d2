"""Blocks of a log whose lines are alike: their numbers as columns of bytes, without an object for each line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ddprof.readers.numbers import LARGEST_RANK
from ddprof.slices.training_logs.reading.counting import LoopTable, table_of
from ddprof.slices.training_logs.reading.iterations import RecordPlace, records_table
from ddprof.slices.training_logs.reading.kinds import MOST_COUNTED, UPDATE, TimeKind, most_ms
from ddprof.slices.training_logs.reading.lines import MOST_MS, NOWHERE, Span, StampPlace, minute_s
from ddprof.slices.training_logs.reading.shapes import ZEROS, LineShape, LoopShape
from ddprof.tables import Array

_EXACT_DIGITS = 15  # which a float holds, whatever they are
_FEWEST_ALIKE = 8  # lines one below the other; fewer are read one by one


class _Columns(NamedTuple):
    """Numbers of lines that are alike: records by writer, or lines of a loop, and shares of devices in per cent."""

    records: dict[str, list[Array]]
    of_loop: LoopTable | None
    rates: tuple[Array, Array]

    def at(self, mask: Array) -> _Columns:
        """The numbers of a mask of lines."""
        records = {writer: [table[mask] for table in tables] for writer, tables in self.records.items()}
        mfu, memory = (rate[mask] if len(rate) else rate for rate in self.rates)
        return _Columns(records, self.of_loop and self.of_loop.at(mask), (mfu, memory))


class Plan(NamedTuple):
    """The reading of all lines of one shape: their text with zeros, the places of the shape's digits, and these."""

    text: bytes
    fixed: Array
    digits: Array
    shape: LineShape

    def read(self, rows: Array) -> tuple[_Columns, Array]:
        """The numbers of the lines, and a mask of those that are sound. Raises ValueError where one is no number."""
        lines = _Alike(rows, self.text.decode())
        records: dict[str, list[Array]] = defaultdict(list)
        are_sound, of_loop = np.ones(len(rows), bool), None
        for place in self.shape.records:
            table, sound = lines.records(place)
            records[place.writer].append(table)
            are_sound &= sound
        if self.shape.loop is not None:
            of_loop, sound = lines.of_loop(self.shape.loop)
            are_sound &= sound
        mfu, memory = (
            np.empty(0) if span == NOWHERE else lines.number(span) for span in self.shape.rates or (NOWHERE, NOWHERE)
        )
        return _Columns(records, of_loop, (mfu, memory)), are_sound


def plan_of(raw: bytes, text: bytes, fixed: Sequence[Span], shape: LineShape) -> Plan | None:
    """The plan for all lines like this one; None where something else than numbers is read of them."""
    loop = shape.loop
    if shape.is_nan or shape.is_of_run or shape.is_of_nccl or not raw.isascii() or b"\x1b" in raw:
        return None
    if len(shape.takers) > (shape.rates is not None):
        return None
    if not shape.records and (loop is None or raw.startswith(b"|") or not _is_timed(loop)):
        return None
    row = np.frombuffer(raw, np.uint8)
    places = np.array([at for span in fixed for at in range(*span)], np.intp)
    plan = Plan(text, places, row[places], shape)
    try:
        *_, is_sound = plan.read(row[None])
    except ValueError:
        return None
    return plan if is_sound.all() else None


def _is_timed(loop: LoopShape) -> bool:
    """True for lines of a training with a counter, its time, and nothing that is added to others."""
    if loop.is_bar or loop.evaluates or not loop.trains or not loop.counters or loop.clocks:
        return False
    kinds = {meaning.kind for _, meaning in loop.timed} - {TimeKind.WAIT}
    return bool(kinds) and all(meaning.name != UPDATE for _, meaning in loop.timed)


class _Alike(NamedTuple):
    """Lines of one shape: a row of bytes for each, and their text with zeros."""

    rows: Array
    text: str

    def number(self, span: Span) -> Array:
        """The number that stands there in each line; 0 where nothing does."""
        begin, end = span
        written = self.text[begin:end]
        digits = [at for at in range(begin, end) if self.text[at] == "0"]
        _, _, part = written.partition(".")
        if len(digits) <= _EXACT_DIGITS and not written.strip("0.,") and not part.strip("0"):
            powers = [float(10**power) for power in reversed(range(len(digits)))]
            whole: Array = (self.rows[:, digits].astype(np.float64) - ord("0")) @ np.array(powers)
            return whole / float(10 ** len(part))
        cells = np.ascontiguousarray(self.rows[:, begin:end]).view(f"S{end - begin}")[:, 0].tolist()
        return np.array([float(cell.replace(b",", b"")) for cell in cells])

    def value(self, spans: tuple[Span, ...]) -> Array:
        """The number, of a duration in seconds."""
        if len(spans) == 1:
            return self.number(spans[0])
        days, hours, minutes, seconds = map(self.number, spans)
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds

    def clock(self, stamps: Sequence[StampPlace]) -> tuple[Array, float]:
        """The last time stamp of each line, nan without one that can be, and its resolution, in seconds."""
        if not stamps:
            return np.full(len(self.rows), np.nan), np.nan
        begin, minute, (second, end), part, _ = stamps[-1]
        cells = self.rows[:, [*range(begin, second), *range(*minute[-1])]]
        firsts = np.flatnonzero(np.concatenate(([True], (cells[1:] != cells[:-1]).any(axis=1))))
        texts = [self.rows[first].tobytes().decode() for first in firsts]
        minutes = [minute_s(text[begin:second], text[slice(*minute[-1])], begin, minute) for text in texts]
        s = np.repeat(np.array(minutes, np.float64), np.diff(firsts, append=len(cells)))
        places = part[1] - part[0]
        return s + self.number((second, end)) + self.number(part) / float(10**places), 10.0**-places

    def records(self, place: RecordPlace) -> tuple[Array, Array]:
        """The table of the records at a place, and a mask of those that are no exceptions."""
        number, given = self.number(place.number), self.number(place.time)
        tflops, batch = self.number(place.tflops), self.number(place.batch)
        s, grain_s = self.clock(place.stamps)
        sound = (number < MOST_COUNTED) & np.isfinite(tflops) & ~(np.isnan(s) & bool(place.stamps))
        with np.errstate(divide="ignore", over="ignore"):
            ms = given * place.each_ms if place.each_ms else 1e3 / given
        if place.time == NOWHERE:
            ms = np.full(len(s), np.nan)
            sound &= ~np.isnan(s)
        else:
            sound &= (ms > 0) & (ms < MOST_MS)
        numbers = np.rint(np.where(sound, number, 0)).astype(np.int64)
        of = (np.where(column > 0, column, np.nan) for column in (tflops, batch))
        return records_table(numbers, ms, (s, grain_s), *of), sound

    def of_loop(self, loop: LoopShape) -> tuple[LoopTable, Array]:
        """The lines of a loop, and a mask of those that are no exceptions."""
        rows, nowhere = np.arange(len(self.rows)), np.full(len(self.rows), np.nan)
        table = LoopTable(nowhere, nowhere, nowhere, *(nowhere,) * 2, {}, {}, {})
        s, grain_s = self.clock(loop.stamps)
        sound = ~(np.isnan(s) & bool(loop.stamps))
        for field in loop.counters:
            of = self.value(field.of) if field.of else nowhere
            table.counters[field.key] = rows, np.floor(self.value(field.spans)), of
            if field.of:
                table.counters[f"{field.key}/"] = rows, np.floor(of), nowhere
                sound &= of < MOST_COUNTED
        for field, (kind, name, each_ms) in loop.timed:
            value = self.value(field.spans)
            ms, grain_ms = value * each_ms, np.full(len(value), field.grain * each_ms)
            if kind is TimeKind.RATE:
                ms, grain_ms = np.divide(1e3, value, out=np.zeros(len(value)), where=value != 0), np.zeros(len(value))
            sound &= ms < most_ms(kind)
            if kind is TimeKind.WAIT:
                table.waits.setdefault(name, (rows, ms))
            else:
                table.times.setdefault((kind, name), (rows, ms, grain_ms))
        epoch = nowhere if loop.epoch is None else self.value(loop.epoch.spans)
        rank = nowhere if loop.rank == NOWHERE else self.number(loop.rank)
        rank = np.where(rank <= LARGEST_RANK, rank, np.nan)
        return table._replace(epoch=epoch, rank=rank, clock_s=s, grain_s=np.full(len(s), grain_s)), sound


class AlikeLines:
    """The lines of a block, and which of them are read together."""

    def __init__(self, text: bytes, plans: Sequence[Plan]) -> None:
        self.text = text
        self._bytes, self._zeros = np.frombuffer(text, np.uint8), np.frombuffer(text.translate(ZEROS), np.uint8)
        ends = np.flatnonzero(self._bytes == ord("\n"))
        self._starts = np.concatenate(([0], ends + 1))
        self._lengths = np.append(ends, len(text)) - self._starts
        self.lines = len(self._starts)
        self._is_alone = np.ones(self.lines, bool)
        self._columns: list[tuple[Plan, Array, _Columns]] = []
        self._runs = self._alone = np.empty(0, np.intp)
        for plan in plans:
            self._assign(plan, 0)
        self._divide()

    @property
    def plans(self) -> list[Plan]:
        """The plans that read a line."""
        return [plan for plan, *_ in self._columns]

    def add(self, plan: Plan, since: int) -> None:
        """Read the lines of one more plan, from `since` on."""
        self._assign(plan, since)
        self._divide()

    def _assign(self, plan: Plan, since: int) -> None:
        size = len(plan.text)
        lines = np.flatnonzero((self._lengths[since:] == size) & self._is_alone[since:]) + since
        if len(lines):
            texts = sliding_window_view(self._zeros, size)[self._starts[lines]]
            lines = lines[(texts == np.frombuffer(plan.text, np.uint8)).all(axis=1)]
        if len(lines):
            rows = sliding_window_view(self._bytes, size)[self._starts[lines]]
            are_of_plan = (rows[:, plan.fixed] == plan.digits).all(axis=1)
            columns, are_sound = plan.read(rows)
            are_sound &= are_of_plan
            if are_sound.any():
                self._is_alone[lines[are_sound]] = False
                self._columns.append((plan, lines[are_sound], columns.at(are_sound)))

    def _divide(self) -> None:
        self._alone = np.concatenate(([-1], np.flatnonzero(self._is_alone), [self.lines]))
        self._runs = self._alone[:-1][np.diff(self._alone) > _FEWEST_ALIKE] + 1

    def alike_until(self, at: int) -> int:
        """The line behind those from `at` on that are read together; `at` where they are too few."""
        end = int(self._alone[np.searchsorted(self._alone, at)])
        return end if end - at >= _FEWEST_ALIKE else at

    def alone_until(self, at: int) -> int:
        """The line behind `at` from which on enough are read together."""
        row = int(np.searchsorted(self._runs, at, "right"))
        return int(self._runs[row]) if row < len(self._runs) else self.lines

    def span(self, at: int, end: int) -> Span:
        """The place of some lines in the text."""
        return int(self._starts[at]), int(self._starts[end - 1] + self._lengths[end - 1])

    def line_behind(self, place: int) -> int:
        """The line behind the one at a place of the text."""
        return int(np.searchsorted(self._starts, place, "right"))

    def parts(self, at: int, end: int) -> Iterator[tuple[Plan, Array, slice, _Columns]]:
        """Plans of some lines that are read together, the lines that each reads, and where these are in its columns."""
        for plan, lines, columns in self._columns:
            first, behind = np.searchsorted(lines, (at, end)).tolist()
            if first < behind:
                yield plan, lines[first:behind], slice(first, behind), columns


def records_of(block: AlikeLines, at: int, end: int) -> dict[str, Array]:
    """Tables of the records of some lines that are read together, by writer."""
    parts: dict[str, list[tuple[Array, Array]]] = defaultdict(list)
    for _, lines, own, columns in block.parts(at, end):
        for writer, tables in columns.records.items():
            parts[writer].extend((lines, table[own]) for table in tables)
    joined = {writer: [np.concatenate(of) for of in zip(*part, strict=True)] for writer, part in parts.items()}
    return {writer: table[np.argsort(lines, kind="stable")] for writer, (lines, table) in joined.items()}


def loop_of(block: AlikeLines, at: int, end: int) -> tuple[LoopTable, dict[str, int]]:
    """Some lines of a loop that are read together, and the last of each writer."""
    numbers, tables = [np.empty(0, np.intp)], []
    last: dict[str, int] = {}
    for plan, lines, own, columns in block.parts(at, end):
        if columns.of_loop is not None:
            numbers.append(lines)
            tables.append(columns.of_loop.part(own.start, own.stop))
            last[plan.shape.who] = max(int(lines[-1]), last.get(plan.shape.who, 0))
    in_order = np.concatenate(numbers)
    table, in_order = table_of(tables).take(np.argsort(in_order, kind="stable")), np.sort(in_order)
    return table, {who: int(np.searchsorted(in_order, line)) for who, line in last.items()}
