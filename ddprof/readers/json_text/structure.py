"""Starts and ends of objects in JSON text. Brace depth outside strings in one vectorised pass; never text patterns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof.tables import Array

_QUOTE, _BACKSLASH = 34, 92
_DELTA = bytes(1 if c in b"[{" else 255 if c in b"]}" else 0 for c in range(256))


@dataclass(frozen=True)
class Structure:
    """The skeleton of a piece of JSON that starts outside any string.

    `brackets` are the offsets of brackets outside strings, `depth` the nesting depth after each of them (0 at the
    start of the piece), `quotes` the offsets of the quotes that open and close strings, alternating.
    """

    brackets: Array
    depth: Array
    quotes: Array

    def close(self) -> int | None:
        """Offset of the bracket that closes the enclosing value; None if this piece does not close it."""
        below = np.flatnonzero(self.depth < 0)
        return int(self.brackets[below[0]]) if len(below) else None

    def last_end(self) -> int | None:
        """Offset just after the last complete value at depth 0; None without one."""
        ends = np.flatnonzero(self.depth == 0)
        return int(self.brackets[ends[-1]]) + 1 if len(ends) else None

    def open(self) -> Array:
        """Offsets of the brackets that stand open at the end of the piece."""
        least = np.minimum.accumulate(self.depth[::-1])[::-1]  # from there on
        return np.compress((self.depth == least) & (np.diff(self.depth, prepend=0) > 0), self.brackets)

    def depth_at(self, offset: int) -> int:
        """Nesting depth just before `offset`."""
        row = int(np.searchsorted(self.brackets, offset))
        return int(self.depth[row - 1]) if row else 0

    def opens_string(self, offset: int) -> bool:
        """True where the byte at `offset` is the quote that opens a string."""
        row = int(np.searchsorted(self.quotes, offset))
        return row % 2 == 0 and row < len(self.quotes) and int(self.quotes[row]) == offset


def structure(text: bytes) -> Structure:
    """The skeleton of `text`, which must start outside any string; a string left open at the end runs to the end."""
    data = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    if b"\\" in text:
        quotes = quotes[~_escaped(data, quotes)]
    delta = np.frombuffer(text.translate(_DELTA), np.int8)
    brackets = np.flatnonzero(delta)
    brackets = brackets[np.searchsorted(quotes, brackets) % 2 == 0]
    return Structure(brackets, np.cumsum(delta[brackets], dtype=np.int64), quotes)


def _escaped(data: Array, quotes: Array) -> Array:
    """Mask of the quotes that an odd number of backslashes precedes."""
    result = np.zeros(len(quotes), bool)
    for row in np.flatnonzero((quotes > 0) & (data[np.maximum(quotes - 1, 0)] == _BACKSLASH)):
        at = int(quotes[row]) - 1
        while at >= 0 and data[at] == _BACKSLASH:
            at -= 1
        result[row] = (int(quotes[row]) - 1 - at) % 2 == 1
    return result
