"""The text of the script's own lines: a call written in C (`fcntl.flock`) has no Python frame to be seen in."""

from __future__ import annotations

import linecache
from collections.abc import Sequence

from ddprof.capture.describe.stacks import is_library
from ddprof.capture.stacks.table import Frame

_MAX_CHARACTERS = 160


def source_lines(frames: Sequence[Frame]) -> list[str | None]:
    """The text of each frame's line as far as the file can be read now; None for libraries."""
    return [None if not file or is_library(file) else _text(file, line) for file, _, line in frames]


def _text(file: str, line: int) -> str | None:
    return linecache.getline(file, line).strip()[:_MAX_CHARACTERS] or None
