"""Salvage of sound events from text that the strict decoder rejects: what begins like an event is read once, alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain, pairwise
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")
# Where an event may begin: an object that is no value of a key and not the first of a list inside an event.
_START = re.compile(rb'(?:\A|[^:\[\s])\s*(\{)(?=\s*["}])')
_GLUE = re.compile(rb"\s*,?\s*")
# Text of one file that is read for an event in vain before the rest of its damaged text is given up: some seconds. Each
# piece that is none counts for at least so many bytes.
MOST_VAIN_BYTES = 128 << 20
_PIECE_BYTES = 1 << 9
_REFUSED = (msgspec.DecodeError, UnicodeDecodeError)
_LONGEST_INTEGER = 40  # digits; 64 bits have 19. Python takes quadratic time to read longer ones
_LONGEST_FRACTION = 400  # characters; float64 written out has 324 at most
_ESCAPE = re.compile(
    r"(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F]..|\\.", re.S
)
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
# Right behind an event, and at the end of the text.
_NEAR, _LAST = re.compile(rb"\s*(?:,\s*)?\]"), re.compile(rb"\]\s*(?:\}\s*)?\Z")


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
        self._vain_bytes = 0

    def __call__(self, text: bytes, is_last: bool) -> Salvage[T]:
        """All events of `text`, which begins between two events or inside one.

        Where `is_last`, nothing follows. Else what stands behind the last event is left for the next text.
        """
        saved: Salvage[T] = Salvage()
        at, starts = 0, (match.start(1) for match in _START.finditer(text, 0, len(text.rstrip())))
        for start, stop in pairwise(chain(starts, [len(text)])):
            saved.close = _list_end(text, saved.end, at, start)
            if saved.close is not None or self._vain_bytes >= MOST_VAIN_BYTES:
                break
            if self._keep(saved, text, start, stop):
                at = saved.end
            else:
                at = start + 1
                self._vain_bytes += stop - start + _PIECE_BYTES
        if saved.close is None and is_last:
            saved.close = _list_end(text, saved.end, at, len(text), True)
        if saved.close is not None or is_last or self._vain_bytes >= MOST_VAIN_BYTES:
            self._skipped(saved, text, len(text) if saved.close is None else saved.close)
        return saved

    def _keep(self, saved: Salvage[T], text: bytes, start: int, stop: int) -> bool:
        """Add the event that a piece begins with, if it is one."""
        piece = text[start:stop]
        try:
            content = piece[: _FINDER.raw_decode(piece.decode("latin-1"))[1]]  # a character for each byte
            event = self._strict(content)
        except (json.JSONDecodeError, RecursionError):
            return False
        except _REFUSED:
            event = self._mended(saved, content)
        if event is None:
            return False
        self._skipped(saved, text, start)
        saved.events.append(event)
        saved.end = start + len(content)
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


def is_list_end(text: bytes, bracket: int, is_last: bool) -> bool:
    """True where the closing bracket at this offset ends the list: a value of the root, the end of the root, or another
    document follows. `is_last`: the text is complete.
    """
    match = _AFTER.match(text, bracket)
    if match is None or match["last"] is not None:
        return match is not None and is_last
    return (match["key"] or match["other"]) not in _OF_EVENTS


def _list_end(text: bytes, last_event: int, begin: int, until: int, is_last: bool = False) -> int | None:
    """The bracket that ends the list between an event that ended at `last_event` and another that may begin at `until`.

    Right behind the event any value of the root may follow it, in damaged text from `begin` on only those of profilers.
    `is_last`: nothing follows `until`.
    """
    near = _NEAR.match(text, last_event) if is_last or begin == last_event else None
    if near is not None and (is_last or is_list_end(text, near.end() - 1, False)):
        return near.end() - 1
    behind = _BEHIND.search(text, begin, until) or (_LAST.search(text, begin) if is_last else None)
    return None if behind is None else behind.start()


_PARSER = json.JSONDecoder(strict=False, parse_int=_integer, parse_float=_fraction, parse_constant=lambda _: None)
_FINDER = json.JSONDecoder(strict=False, parse_int=float)  # fast, and linear in the length of a number
