"""Text from outside (names of files, values in them) as text that any terminal, file and document takes."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_UNPAIRED = re.compile(r"[\ud800-\udfff]")


def encodable(text: str) -> str:
    r"""Text with what no encoding can write spelled out: bytes of a file name that are no UTF-8 come as "\udce9"."""
    return _UNPAIRED.sub(lambda found: f"\\u{ord(found[0]):x}", text)


def clean(text: str) -> str:
    """Text for people: encodable, and control characters (escape sequences, newlines, bidi overrides) made '?'."""
    return _CONTROL.sub("?", encodable(text))
