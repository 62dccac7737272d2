"""The shape of a line: what it says apart from the values of its numbers, and where these stand.

Lines of one loop are alike but for their digits, so that a shape is worked out once and read again for every line that
has the same text with a zero for each digit. Digits in words, and those of a writer's mark, are part of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ddprof.slices.training_logs.reading.ending import is_nan
from ddprof.slices.training_logs.reading.fields import Field, fields_of
from ddprof.slices.training_logs.reading.iterations import RecordPlace, record_places
from ddprof.slices.training_logs.reading.kinds import Meaning, clocks_of, counting, epoch_of, timed_of
from ddprof.slices.training_logs.reading.lines import (
    BAR_RATES,
    EVALUATION,
    NOWHERE,
    OF_TRAINING,
    TRAINED,
    LogLine,
    Span,
    StampPlace,
    parted,
    stamps_of,
    uncoloured,
)
from ddprof.slices.training_logs.reading.machine import OF_DEVICES, rates_of

Words = tuple[str, ...]
Takers = Sequence[tuple[Words, Callable[[LogLine], object]]]

OF_RUNS = (":::MLL", "Total time: ", " train_wall=", "'train_runtime'")  # in lines on the whole of one
ZEROS = bytes.maketrans(b"123456789", b"000000000")
_OFTEN = 4  # lines, before those like them are read at once
_MOST_SHAPES = 4096  # some MB; a log of more has few lines of each
_OF_TRAINING = re.compile(OF_TRAINING, re.IGNORECASE)
_RANK = re.compile(r"\b(?:rank|default)[ _:=]{0,2}(?P<named>\d{1,7})\b|^\s{0,6}(?P<prefixed>\d{1,6}):\s", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_NAME = re.compile(r"[A-Za-z#][\w#./-]*\d[\w#./-]*")  # with a digit: fields are named so
_OPTION, _OPTIONS = re.compile(r"[ '\"]--[a-z][\w-]*"), 3
_HUGE = re.compile(r"\de[+-]?\d{3}", re.IGNORECASE)  # a float, or none, by its digits


class LoopShape(NamedTuple):
    """A line that may be of a loop, apart from values: `bare` without time stamps, `free` the places of numbers."""

    bare: str
    is_bar: bool
    evaluates: bool = False
    trains: bool = False
    stamps: tuple[StampPlace, ...] = ()
    counters: Sequence[Field] = ()
    epoch: Field | None = None
    clocks: Sequence[Field] = ()
    timed: Sequence[tuple[Field, Meaning]] = ()
    rank: Span = NOWHERE
    free: tuple[Span, ...] = ()
    is_of_all: bool = True  # of every line with such a text


class LineShape(NamedTuple):
    """Any line, apart from values: its writer, the length of the prefix, places of records, and what else reads it."""

    who: str
    prefix: int
    records: tuple[RecordPlace, ...]
    loop: LoopShape | None
    takers: tuple[Callable[[LogLine], object], ...]
    is_nan: bool
    rates: tuple[Span, Span] | None  # of devices, where their taker reads nothing else
    is_of_run: bool  # as a whole
    is_of_nccl: bool

    def line(self, text: str) -> LogLine:
        """The parts of a line of this shape."""
        return LogLine(self.who, text[: self.prefix], text[self.prefix :])


def loop_shape(text: str, who: str) -> LoopShape:
    """The shape of a line's whole text, prefix and all: "Epoch:" before a bracket looks like the name of a host."""
    if ("<" in text or " • " in text) and any(rate in text for rate in BAR_RATES):
        return LoopShape(text, is_bar=True)  # whose rate is of its last few iterations
    if len(_OPTION.findall(text)) >= _OPTIONS:  # a command, which a launcher repeats when its workers have failed
        return LoopShape(text, is_bar=True)
    stamps = stamps_of(text)
    bare, where = _without(text, who, stamps)
    fields = fields_of(bare)
    counters, end = counting(bare, fields)
    evaluates = EVALUATION.search(bare, 0, end or len(bare))
    is_evaluation = evaluates is not None and TRAINED.search(bare, 0, evaluates.start()) is None
    trains = "loss" in bare or _OF_TRAINING.search(bare) is not None
    epoch, rank = epoch_of(fields), _rank(text)
    placed = {id(field): _placed(field, where) for field in fields}
    spans = [span for field in placed.values() for span in (*field.spans, *field.of)]
    is_of_all = _HUGE.search(bare) is None and not any(
        "e" in text[begin:end].lower() for field in counters for begin, end in (*placed[id(field)].spans, *field.of)
    )
    return LoopShape(
        bare,
        False,
        is_evaluation,
        trains,
        stamps,
        [placed[id(field)] for field in counters],
        None if epoch is None else placed[id(epoch)],
        [placed[id(field)] for field in clocks_of(fields)],
        [(placed[id(field)], meaning) for field, meaning in timed_of(fields)],
        rank,
        (*spans, *((stamp.begin, stamp.end) for stamp in stamps)),
        is_of_all,
    )


def _without(text: str, who: str, stamps: Sequence[StampPlace]) -> tuple[str, Sequence[int]]:
    """The text without stamps, whose numbers are no others, and a mark in brackets; where its characters were."""
    where: Sequence[int] = range(len(text) + 1)
    mark = text.find(who) if who.startswith("[") else -1
    if not stamps and mark < 0:
        return text, where
    bare, end = "", 0
    kept: list[int] = []
    for stamp in stamps:
        begin, stop = stamp.begin, stamp.end
        bare, end, kept = f"{bare}{text[end:begin]} ", stop, [*kept, *range(end, begin), begin]
    bare, kept = bare + text[end:], [*kept, *range(end, len(text) + 1)]
    at = bare.find(who) if mark >= 0 else -1
    return (bare, kept) if at < 0 else (bare[:at] + bare[at + len(who) :], [*kept[:at], *kept[at + len(who) :]])


def _placed(field: Field, where: Sequence[int]) -> Field:
    """The field with its places in the whole line."""
    if isinstance(where, range):
        return field

    def whole(spans: tuple[Span, ...]) -> tuple[Span, ...]:
        return tuple((where[begin], where[end - 1] + 1) if begin < end else NOWHERE for begin, end in spans)

    return field._replace(spans=whole(field.spans), of=whole(field.of))


def _rank(text: str) -> Span:
    """The place of the number of the rank that writes a line, as the line or its launcher says."""
    if not ("ank" in text or "efault" in text or text[:1] in " \t0123456789"):
        return NOWHERE  # cheaper than the search
    rank = _RANK.search(text)
    return NOWHERE if rank is None else rank.span("named" if rank["named"] else "prefixed")


class _Known:
    """A shape, and how often it was read."""

    __slots__ = ("seen", "shape")

    def __init__(self, shape: LineShape) -> None:
        self.shape, self.seen = shape, 0


class KnownShapes:
    """The shapes of one log's lines with some words. `takers`: words, and what reads lines that hold one of them."""

    def __init__(self, words: Words, takers: Takers) -> None:
        self._words, self._takers, self._shapes = words, takers, 0
        # By the text with zeros: the places of digits that are part of a shape, and shapes by these digits
        self._known: dict[bytes, tuple[tuple[Span, ...], dict[str, _Known]]] = {}
        # The last line, its text with zeros and its shape, where that was often read
        self.often: tuple[bytes, bytes, tuple[Span, ...], LineShape] | None = None

    def of(self, raw: bytes) -> tuple[str, LineShape]:
        """The text of a line, and its shape."""
        self.often = None
        line = uncoloured(raw)
        key = line.translate(ZEROS)
        text, of_key = line.decode("utf-8", "replace"), self._known.get(key)
        if of_key is not None:
            places, shapes = of_key
            known = shapes.get("".join([text[begin:end] for begin, end in places]) if places else "")
            if known is not None:
                known.seen += 1
                if known.seen >= _OFTEN and known.seen & (known.seen - 1) == 0:  # and then after twice as many
                    self.often = raw, key, places, known.shape
                return text, known.shape
        shape = self._made(text)
        if (fixed := _fixed(text, shape)) is not None and any(word in text for word in self._words):
            self._shapes += 1
            if self._shapes > _MOST_SHAPES:
                self._known.clear()
                self._shapes = 1
            digits = "".join([text[begin:end] for begin, end in fixed])
            self._known.setdefault(key, (fixed, {}))[1][digits] = _Known(shape)
        return text, shape

    def _made(self, text: str) -> LineShape:
        line = parted(text)
        records = tuple(record_places(line))
        is_of_nccl, is_of_run = " NCCL " in line.text, any(word in line.text for word in OF_RUNS)
        loop = None if records or is_of_nccl or not _DIGITS.search(text) else loop_shape(text, line.who)
        takers = tuple(take for words, take in self._takers if any(word in line.text for word in words))
        rates = rates_of(line) if any(word in line.text for word in OF_DEVICES) else None
        is_nan_line = is_nan(line.text)
        return LineShape(line.who, len(line.prefix), records, loop, takers, is_nan_line, rates, is_of_run, is_of_nccl)


def _fixed(text: str, shape: LineShape) -> tuple[Span, ...] | None:
    """The places of digits that are part of a line's shape, in its names and its writer's mark; None where the shape is
    of this line alone.
    """
    loop = shape.loop
    if (loop is None and not shape.records) or (loop is not None and not loop.is_of_all):
        return None
    who = text.find(shape.who)
    marked = [(who, who + len(shape.who))] if shape.who else []
    names = [name.span() for name in _NAME.finditer(text)] if loop is not None and not loop.is_bar else []
    return tuple(
        digits.span()
        for begin, end in sorted({*marked, *names})
        for digits in _DIGITS.finditer(text, begin, end)
        if (begin, end) in marked
        or not (loop and any(first <= digits.start() and digits.end() <= last for first, last in loop.free))
    )
