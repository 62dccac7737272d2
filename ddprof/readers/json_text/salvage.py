"""Getting what is sound out of event text that the strict decoder rejects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_PARSER = json.JSONDecoder(strict=False, parse_float=Decimal)  # exact; allows NaN, Infinity and control characters
_GLUE = re.compile(r"[\s,]*")


@dataclass(frozen=True)
class Salvage(Generic[T]):
    """Events found; spans [start, end) of text that belongs to none; whether bytes that are not UTF-8 were
    replaced; and the
    offset just after the last event."""

    events: list[T]
    lost: list[tuple[int, int]]
    replaced_bytes: bool
    last_end: int


def salvage_events(text: bytes, accept: Callable[[Any], T | None]) -> Salvage[T]:
    """Every complete object in `text` that `accept` takes for an event.

    It returns None for others, such as stray arguments. Offsets are those of the bytes. An incomplete tail counts as
    lost; closing brackets and commas do not.
    """
    chars = text.decode("latin-1")  # one character per byte, so that offsets are those of the bytes
    events: list[T] = []
    lost: list[tuple[int, int]] = []
    good_end = at = 0
    while (start := chars.find("{", at)) >= 0:
        event, end = _event_at(chars, start, accept)
        if event is None:
            at = start + 1
            continue
        if _GLUE.fullmatch(chars, good_end, start) is None:
            lost.append((good_end, start))
        events.append(event)
        good_end = at = end
    if chars[good_end:].strip(" \t\r\n,]}"):
        lost.append((good_end, len(chars)))
    return Salvage(events, lost, _is_not_utf8(text), good_end)


def _event_at(chars: str, start: int, accept: Callable[[Any], T | None]) -> tuple[T | None, int]:
    try:
        _, end = _PARSER.raw_decode(chars, start)
        value = _PARSER.decode(chars[start:end].encode("latin-1").decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None, start
    return accept(value), end


def _is_not_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.end < len(text) - 4  # a character cut in half at the very end is truncation, not encoding
    return False
