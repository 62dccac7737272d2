"""Where objects lie in text that may be damaged: one pass over its brackets and strings, whatever they hold."""

from __future__ import annotations

import re
from dataclasses import dataclass

# What a profiler writes nests five deep. Deeper text is no event, and costs no more than this many levels.
MAX_DEPTH = 64
_QUOTE, _OPEN, _CLOSE = ord('"'), b"{[", {ord("}"): ord("{"), ord("]"): ord("[")}
# A string ends before a colon, a comma or a closing bracket: where it does not, a quote is missing or was added.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"(?:(?=\s*[:,\]}])|(?P<lost>))|["{}\[\]]', re.S)
_EVENT = re.compile(rb'\{\s*"ph"\s*:')
_LONGEST_GAP = 32  # bytes between a brace and the quote of its first key


@dataclass(frozen=True)
class FoundObject:
    """What begins with one opening brace: an object [start, end), or what breaks off at `end`.

    `inner`: objects that are whole, of those inside (the outermost). `is_open`: the text ends before the object does.
    """

    start: int
    end: int
    is_whole: bool
    inner: tuple[tuple[int, int], ...] = ()
    is_open: bool = False


def find_object(text: bytes, start: int) -> FoundObject:
    """The object whose opening brace is at `start`.

    Its brackets match and its strings end, no more: what it holds is for a parser to judge. It breaks off where they do
    not, where it nests deeper than MAX_DEPTH, and where another event begins inside it, as one that was cut does.
    """
    open_: list[tuple[int, int]] = []
    whole: list[tuple[int, int]] = []
    for token in _TOKEN.finditer(text, start):
        at = token.start()
        byte = text[at]
        if byte == _QUOTE:
            if token.lastgroup:
                return FoundObject(start, _before_key(text, start, token.end()), False, _outermost(whole))
            if token.end() == at + 1:  # a string that nothing ends: no key follows either, so no event
                return FoundObject(start, len(text), False, _outermost(whole), True)
        elif byte in _OPEN:
            if len(open_) == MAX_DEPTH or (open_ and _EVENT.match(text, at)):
                return FoundObject(start, at, False, _outermost(whole))
            open_.append((byte, at))
        elif not open_ or open_[-1][0] != _CLOSE[byte]:
            return FoundObject(start, at + 1, False, _outermost(whole))
        else:
            opened, begin = open_.pop()
            if not open_:
                return FoundObject(start, at + 1, True, _outermost(whole))
            if opened == _OPEN[0]:
                whole.append((begin, at + 1))
    return FoundObject(start, len(text), False, _outermost(whole), True)


def _outermost(whole: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Of objects in order of their ends, those that no other one holds."""
    kept: list[tuple[int, int]] = []
    for begin, end in reversed(whole):
        if not kept or end <= kept[-1][0]:
            kept.append((begin, end))
    return tuple(reversed(kept))


def _before_key(text: bytes, start: int, end: int) -> int:
    """The brace before a "string" that is the end of a broken one and the first quote of the next object's key."""
    brace = text.rfind(b"{", max(start + 1, end - _LONGEST_GAP), end)
    return brace if brace >= 0 and text[brace + 1 : end].strip() == b'"' else end
