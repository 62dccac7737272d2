"""Start of the event list in growing text: behind values of the root, or the root itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, auto

import numpy as np
from msgspec import Struct

from ddprof.readers.json_text.structure import Structure, structure

# Beyond this many bytes a list that has not begun is not waited for: ten times the longest header of a real trace (the
# groups of ten thousand ranks), and what a damaged header may hide.
MAX_HEADER_BYTES = 32 << 20
_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_LONGEST_KEY = 256  # bytes kept back, so that no key is cut in two
_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"


class TextLayout(Enum):
    """Layout of the text: a list in an object, a list, one object per line, or none of these."""

    IN_OBJECT, LIST, LINES, NONE = auto(), auto(), auto(), auto()


class Start(Struct, frozen=True):
    """The layout of a file, and the possible offset of the first event in the text so far."""

    layout: TextLayout
    offset: int = 0


class Beginning:
    """Search for the start of the events in the first bytes of a file, each byte once."""

    def __init__(self) -> None:
        self.text = bytearray()
        self._scanned = self._depth = 0
        self._in_string = False
        self._root_end: int | None = None

    def add(self, chunk: bytes, is_last: bool) -> Start | None:
        """The start as found so far; None where more text is needed. `is_last`: there is no more."""
        if not self._scanned:
            chunk = bytes(self.text) + chunk  # a chunk may end inside the byte order mark
            self.text = bytearray(chunk.removeprefix(_BOM).lstrip(_SPACE))
        else:
            self.text += chunk
        if self.text.startswith(b"["):
            return Start(TextLayout.LIST, 1)
        if self.text.startswith(b"{"):
            start = self._scan(is_last)
            if start is not None:
                return start
        if is_last or len(self.text) > MAX_HEADER_BYTES or self._is_over():
            return self._behind_damage()
        return None

    def _behind_damage(self) -> Start:
        """The list by its key alone, in a root whose strings or brackets do not match; else none."""
        is_broken = self.text.startswith(b"{") and self._root_end is None
        key = _KEY.search(self.text) if is_broken else None
        return Start(TextLayout.NONE) if key is None else Start(TextLayout.IN_OBJECT, key.end())

    def _is_over(self) -> bool:
        """True where the root is not an object, or ended without a list and something else follows it."""
        if len(self.text) <= _LONGEST_KEY:
            return False
        if not self.text.startswith(b"{"):
            return True
        return self._root_end is not None and bool(self.text[self._root_end :].lstrip(_SPACE))

    def _scan(self, is_last: bool) -> Start | None:
        """Search the new text for the key of the list at depth 1, or the end of the root before another object."""
        end = len(self.text) if is_last else max(len(self.text) - _LONGEST_KEY, self._scanned)
        while end > self._scanned and self.text[end - 1] == 0x5C:
            end -= 1  # a backslash and what it escapes stay together
        if self._root_end is None and end > self._scanned:
            within = self._scanned, min(len(self.text), end + _LONGEST_KEY)
            key = _KEY.search(self.text, *within)
            # The first key is nearly always the list's: the events behind it are then not looked at.
            start = self._list([key], *self._new(key.start() + 1)) if key and key.start() < end else None
            if start is not None:
                return start
            shape, first = self._new(end)
            start = self._list((k for k in _KEY.finditer(self.text, *within) if k.start() < end), shape, first)
            if start is not None:
                return start
            ends = np.flatnonzero(self._depth + shape.depth <= 0)
            if len(ends):
                self._root_end = first + int(shape.brackets[ends[0]]) + 1
            self._depth += int(shape.depth[-1]) if len(shape.depth) else 0
            self._in_string = len(shape.quotes) % 2 == 1
            self._scanned = end
        if self._root_end is None:
            return None
        following = bytes(self.text[self._root_end :]).lstrip(_SPACE)
        return Start(TextLayout.LINES) if following.startswith(b"{") else None

    def _new(self, end: int) -> tuple[Structure, int]:
        """The structure of the new text up to `end`, and its offset."""
        opened = b'"' if self._in_string else b""
        return structure(opened + bytes(self.text[self._scanned : end])), self._scanned - len(opened)

    def _list(self, keys: Iterable[re.Match[bytes]], shape: Structure, first: int) -> Start | None:
        """The list under the first of some keys at the root. `shape`: of the text from `first`."""
        for key in keys:
            at = key.start() - first
            if shape.opens_string(at) and self._depth + shape.depth_at(at) == 1:
                return Start(TextLayout.IN_OBJECT, key.end())
        return None
