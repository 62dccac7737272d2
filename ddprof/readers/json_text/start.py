"""Start of the event list in growing text: behind values of the root, or the root itself."""

from __future__ import annotations

import re
from enum import Enum, auto

from msgspec import Struct

from ddprof.readers.json_text.structure import structure

# Beyond this many bytes a list that has not begun is not waited for: ten times the longest header of a real trace (the
# groups of ten thousand ranks), and what a damaged header may hide.
MAX_HEADER_BYTES = 32 << 20
_NAME = b'"traceEvents"'
_KEY = re.compile(_NAME + rb"\s*:\s*\[")
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
            return _in_object(bytes(self.text), is_over)
        return Start(TextLayout.NONE) if is_over or len(self.text) > len(_BOM) else None


def _in_object(text: bytes, is_over: bool) -> Start | None:
    """The start in text that begins with an object; None where the object goes on, unless the search `is_over`."""
    shape = structure(text[: text.rfind(_NAME) + 1])  # so that the events behind the key are not looked at
    for key in _KEY.finditer(text):
        if shape.opens_string(key.start()) and shape.depth_at(key.start()) == 1:
            return Start(TextLayout.IN_OBJECT, key.end())
    close = structure(text[1:]).close()
    following = b"" if close is None else text[close + 2 :].lstrip(_SPACE)
    if following:
        return Start(TextLayout.LINES if following.startswith(b"{") else TextLayout.NONE)
    if not is_over:
        return None
    # In a root whose strings or brackets do not match, the key alone tells.
    key_alone = _KEY.search(text) if close is None else None
    return Start(TextLayout.NONE) if key_alone is None else Start(TextLayout.IN_OBJECT, key_alone.end())
