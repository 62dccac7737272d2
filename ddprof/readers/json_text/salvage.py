"""Salvage of sound events from text that the strict decoder rejects, in time linear in the text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from ddprof.readers.json_text.structure import structure

T = TypeVar("T")
_START = re.compile(rb'\{(?=\s*["}])')
_GLUE = re.compile(rb"\s*,?\s*")
# Pieces of one file that are no events, before the rest of its damaged text is given up: some seconds of looking.
MOST_PIECES = 200_000
_REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_DEEPEST = 1_000  # brackets that stand open: json and msgspec read no deeper, so that it is no event
_LONGEST_INTEGER = 40  # digits; 64 bits have 19. Python takes quadratic time to read longer ones
_LONGEST_FRACTION = 400  # characters; float64 written out has 324 at most
_ESCAPE = re.compile(
    r"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F]..|\\.", re.S
)
_QUOTE, _OPEN, _CLOSE = ord('"'), b"{[", {ord("}"): ord("{"), ord("]"): ord("[")}
# A string ends before a colon, a comma or a closing bracket: where it does not, a quote is missing or was added.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"(?:(?=\s*[:,\]}])|(?P<lost>))|["{}\[\]]', re.S)
_EVENT = re.compile(rb'\{\s*"ph"\s*:')
# Keys of Chrome's trace format that open an event; after a bracket none of them is a value of the root.
_OF_EVENTS = frozenset(b"ph cat name pid tid ts dur tts tdur args id id2 s bp cname sf".split())
# Values that profilers write behind the list: believed even where the event before them is broken.
_BEHIND = re.compile(
    rb'\]\s*,\s*"(?:traceName|displayTimeUnit|baseTimeNanoseconds|deviceProperties|distributedInfo|schemaVersion'
    rb'|otherData|stackFrames|samples|systemTraceEvents|metadata|ddprof)"\s*:'
)
_LONGEST_KEY = 200  # bytes
_KEY = rb'\s*"(?P<%s>[^"\\]{0,' + str(_LONGEST_KEY).encode() + rb'})"\s*:'
_AFTER = re.compile(rb"\]\s*(?:," + _KEY % b"key" + rb"|\}\s*\{" + _KEY % b"other" + rb"|(?P<last>(?:\}\s*)?\Z))")
_UNCLEAR = re.compile(rb'\]\s*(?:,\s*(?:"[^"\\]*"?\s*)?|\}\s*(?:\{\s*(?:"[^"\\]*"?\s*)?)?)?\Z')
_SOLID = re.compile(rb"\S")


@dataclass
class Salvage(Generic[T]):
    """The events found, and the spans [start, end) of text outside any event; offsets are those of the text.

    `mended`: events that are kept without a value that is no JSON, or of the wrong type; `replaced`: events with bytes
    that are not UTF-8. `end`: what lies beyond was not looked at, as it is the event list's end (`close`, its bracket)
    or the beginning of an event that goes on.
    """

    events: list[T] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    mended: int = 0
    replaced: int = 0
    end: int = 0
    close: int | None = None


class Salvager(Generic[T]):
    """Finds the events of damaged text. `strict` decodes one event and raises msgspec errors; `typed` makes an event of
    a JSON object of any shape, or None of one that is no event, such as stray arguments.
    """

    def __init__(self, strict: Callable[[bytes], T | None], typed: Callable[[dict[str, Any]], T | None]) -> None:
        self._strict, self._typed = strict, typed
        self._pieces = 0

    def __call__(self, text: bytes, is_last: bool) -> Salvage[T]:
        """All events of `text`, which begins between two events or inside one.

        Where `is_last`, nothing follows: an event that is not whole is lost. Else it is left for the next text.
        """
        saved: Salvage[T] = Salvage()
        at = seen = 0  # behind what was taken for an object, and from where on the end of the list is looked for
        last_object = 0
        while (start := _START.search(text, at)) is not None:
            saved.close = end_between(text, saved.end, seen, start.start())
            if saved.close is not None:
                break
            end, is_whole = _find_object(text, start.start())
            if is_whole is None and not is_last:
                self._skipped(saved, text, start.start())
                return saved
            if self._pieces > MOST_PIECES:
                break
            at, seen = end, start.start()
            last_object = end if is_whole else last_object
            if is_whole and self._keep(saved, text, start.start(), end):
                seen = end
                continue
            self._pieces += 1
        if saved.close is None and is_last:
            saved.close = end_of_text(text, saved.end, last_object, seen)
        if saved.close is not None or is_last or self._pieces > MOST_PIECES:
            self._skipped(saved, text, len(text) if saved.close is None else saved.close)
        return saved

    def _keep(self, saved: Salvage[T], text: bytes, start: int, end: int) -> bool:
        """Add the event that an object is, if it is one."""
        content = text[start:end]
        try:
            event = self._strict(content)
        except _REFUSED:
            event = self._mended(saved, content)
        if event is None:
            return False
        self._skipped(saved, text, start)
        saved.events.append(event)
        saved.end = end
        return True

    def _mended(self, saved: Salvage[T], content: bytes) -> T | None:
        try:
            value, is_replaced = _lenient_object(content)
        except ValueError:
            return None
        event = self._typed(value)
        if event is not None:
            saved.replaced += is_replaced
            saved.mended += not is_replaced
        return event

    @staticmethod
    def _skipped(saved: Salvage[T], text: bytes, until: int) -> None:
        """Record the text between the last event and `until` as lost, unless it only separates two events."""
        glue = _GLUE.match(text, saved.end, until)
        if glue is None or glue.end() < until:
            saved.lost.append((saved.end, until))
        saved.end = until


def _lenient_object(text: bytes) -> tuple[dict[str, Any], bool]:
    """The object, and whether invalid UTF-8 had to be replaced. Fractions are Decimal.

    NaN, infinities and integers of no believable length are None; control characters in strings stay; halves of
    surrogate pairs are replaced, as they cannot be written to any file. Raises ValueError where it is no object.
    """
    try:
        chars, is_replaced = text.decode(), False
    except UnicodeDecodeError:
        chars, is_replaced = text.decode("utf-8", "replace"), True
    if "\\u" in chars:
        chars = _ESCAPE.sub(_whole_character, chars)
    try:
        value = _PARSER.decode(chars)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value, is_replaced


def _whole_character(match: re.Match[str]) -> str:
    escape = match[0]
    return escape if match["pair"] or len(escape) < 3 else "\\ufffd"


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else None


def _fraction(digits: str) -> Decimal | None:
    return Decimal(digits) if len(digits) <= _LONGEST_FRACTION else None


def _find_object(text: bytes, start: int) -> tuple[int, bool | None]:
    """End of the object whose opening brace is at `start`, and whether it is whole; None where the text ends first.

    Only brackets and strings are checked. It is broken where they do not match, or where another event begins inside.
    """
    open_: list[int] = []
    for token in _TOKEN.finditer(text, start):
        at = token.start()
        byte = text[at]
        if byte == _QUOTE:
            if token.lastgroup:
                return token.end(), False
            if token.end() == at + 1:  # a string that nothing ends: no key follows either, so no event
                return len(text), None
        elif byte in _OPEN:
            if open_ and _EVENT.match(text, at):
                return at, False
            open_.append(byte)
            if len(open_) > _DEEPEST:
                return _deep_end(text, at, len(open_) - 1)
        elif not open_ or open_.pop() != _CLOSE[byte]:
            return at + 1, False
        elif not open_:
            return at + 1, True
    return len(text), None


def _deep_end(text: bytes, at: int, open_brackets: int) -> tuple[int, bool | None]:
    """End of an object so many brackets of which stand open before the one at `at`, and whether it is whole."""
    size, closed = 0, np.empty(0, np.int64)
    while not len(closed) and size < len(text) - at:
        size = max(1 << 16, 2 * size)  # so that the time is that of the object, whatever follows it
        shape = structure(text[at : at + size])
        closed = shape.brackets[shape.depth <= -open_brackets]
    end = at + int(closed[0]) + 1 if len(closed) else None
    event = _EVENT.search(text, at, len(text) if end is None else end)
    if event is not None:
        return event.start(), False
    return (len(text), None) if end is None else (end, True)


def is_list_end(text: bytes, bracket: int, is_last: bool) -> bool | None:
    """True where the closing bracket at this offset ends the list; None where the text ends before that is clear.

    It does where a value of the root, the end of the root, or another document follows. `is_last`: the text is
    complete.
    """
    match = _AFTER.match(text, bracket)
    if match is not None and match["last"] is None:
        return (match["key"] or match["other"]) not in _OF_EVENTS
    if _UNCLEAR.match(text, bracket) is None:
        return False
    return (match is not None) if is_last else None


def end_between(text: bytes, last_event: int, begin: int, until: int) -> int | None:
    """The bracket that ends the list between an event that ended at `last_event` and another that may begin at `until`.

    Right behind the event any value of the root may follow it, in damaged text from `begin` on only those of profilers.
    """
    if begin == last_event:
        bracket = _first(text, last_event)
        if bracket is not None and is_list_end(text, bracket, False):
            return bracket
    match = _BEHIND.search(text, begin, until)
    return match.start() if match is not None else None


def end_of_text(text: bytes, last_event: int, last_object: int, begin: int) -> int | None:
    """The bracket that ends the list in text that nothing follows, where no event comes after `last_event`.

    `last_object`: where the last object ended, which need not be an event.
    """
    bracket = _first(text, last_event)
    if bracket is not None:
        return bracket
    bracket = _first(text, last_object)
    if bracket is not None and is_list_end(text, bracket, True):
        return bracket
    match = _BEHIND.search(text, begin)
    return match.start() if match is not None else None


def _first(text: bytes, begin: int) -> int | None:
    """Offset of a closing bracket separated from `begin` only by white space and at most one comma."""
    match = _SOLID.search(text, begin)
    if match is not None and match[0] == b",":
        match = _SOLID.search(text, match.end())
    return match.start() if match is not None and match[0] == b"]" else None


_PARSER = json.JSONDecoder(strict=False, parse_int=_integer, parse_float=_fraction, parse_constant=lambda _: None)
