"""Start and end of the event list in JSON text: by its key, and by the depth of brackets outside strings."""

from __future__ import annotations

import re
from enum import Enum, auto

import numpy as np
from msgspec import Struct

from ddprof.tables import Array

# Beyond this many bytes a list that has not begun is not waited for: ten times the longest header of a real trace (the
# groups of ten thousand ranks), and what a damaged header may hide.
MAX_HEADER_BYTES = 32 << 20
_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_QUOTE, _BACKSLASH = 34, 92
_DELTA = bytes(1 if c in b"[{" else 255 if c in b"]}" else 0 for c in range(256))


class TextLayout(Enum):
    """Layout of the text: a list in an object, a list, one object per line, or none of these."""

    IN_OBJECT, LIST, LINES, NONE = auto(), auto(), auto(), auto()


class Start(Struct, frozen=True):
    """The layout of a file, and the possible offset of the first event in the text so far."""

    layout: TextLayout
    offset: int = 0


class Beginning:
    """Search for the start of the events in the first bytes of a file: again whenever these have doubled."""

    def __init__(self) -> None:
        self.text = bytearray()
        self._searched_bytes = 0

    def add(self, chunk: bytes, is_last: bool) -> Start | None:
        """The start as found so far; None where more text is needed. `is_last`: there is no more."""
        self.text += chunk
        if not is_last and len(self.text) < 2 * self._searched_bytes:
            return None
        self.text = self.text.removeprefix(_BOM).lstrip(_SPACE)
        self._searched_bytes = len(self.text)
        is_over = is_last or len(self.text) > MAX_HEADER_BYTES
        if self.text.startswith(b"["):
            return Start(TextLayout.LIST, 1)
        if self.text.startswith(b"{"):
            return _in_object(bytes(self.text)) or (Start(TextLayout.NONE) if is_over else None)
        return Start(TextLayout.NONE) if is_over or len(self.text) > len(_BOM) else None


def _in_object(text: bytes) -> Start | None:
    """The start in text that begins with an object; None where the object goes on."""
    if key := _KEY.search(text):
        return Start(TextLayout.IN_OBJECT, key.end())
    close, _ = ends(text[1:])
    following = b"" if close is None else text[close + 2 :].lstrip(_SPACE)
    if not following:
        return None
    return Start(TextLayout.LINES if following.startswith(b"{") else TextLayout.NONE)


def ends(text: bytes) -> tuple[int | None, int | None]:
    """Offsets in text that starts outside any string: of the bracket that closes the value around it, and just after
    the last whole value inside that; None without one. A string left open at the end runs to the end.
    """
    data = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    if b"\\" in text:
        quotes = quotes[~_escaped(data, quotes)]
    delta = np.frombuffer(text.translate(_DELTA), np.int8)
    brackets = np.flatnonzero(delta)
    brackets = brackets[np.searchsorted(quotes, brackets) % 2 == 0]
    depth = np.cumsum(delta[brackets], dtype=np.int64)
    below, level = brackets[depth < 0], brackets[depth == 0]
    return (int(below[0]) if len(below) else None), (int(level[-1]) + 1 if len(level) else None)


def _escaped(data: Array, quotes: Array) -> Array:
    """Mask of the quotes that an odd number of backslashes precedes."""
    result = np.zeros(len(quotes), bool)
    for row in np.flatnonzero((quotes > 0) & (data[np.maximum(quotes - 1, 0)] == _BACKSLASH)):
        at = int(quotes[row]) - 1
        while at >= 0 and data[at] == _BACKSLASH:
            at -= 1
        result[row] = (int(quotes[row]) - 1 - at) % 2 == 1
    return result
