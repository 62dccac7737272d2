"""Text from outside (file names, their contents) made printable for any terminal, file and document."""

from __future__ import annotations

import re

from ddprof.untrusted.secrets import masked

# C0 and C1 controls, the soft hyphen, what turns the direction of writing, what has no width, line and paragraph
# separators, and the invisible copies of ASCII (tags).
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_UNPAIRED = re.compile(r"[\ud800-\udfff]")


def encodable(text: str) -> str:
    r"""Text with unencodable characters spelled out: non-UTF-8 bytes of a file name come as "\udce9"."""
    return _UNPAIRED.sub(lambda match: f"\\u{ord(match[0]):x}", text)


def clean(text: str) -> str:
    """Text for people: encodable, control characters (escapes, newlines, bidi overrides) as '?', secrets masked."""
    return _printable(masked(text))


def clean_lines(text: str) -> str:
    """Several lines of text made printable, for documents whose parts are masked before they are packed."""
    return "\n".join(_printable(line) for line in text.split("\n"))


def _printable(text: str) -> str:
    return _CONTROL.sub("?", encodable(text))
