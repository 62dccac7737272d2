"""Threads and streams in words, by the number and name that the file gives them: as in any other tool."""

from __future__ import annotations

import numpy as np

from ddprof.report.phrases import clean
from ddprof.tables import NULL, Table

MAX_NAME_CHARS = 60


def thread_words(tracks: Table, track: int) -> str:
    """A thread of the host, a row of TRACKS: its name and its number."""
    if not 0 <= track < len(tracks):
        return "thread not recorded"
    name, tid = clean(str(tracks["name"][track]))[:MAX_NAME_CHARS], clean(str(tracks["tid"][track]))
    return f"{name} (thread {tid})" if name and tid not in name.split() else name or f"thread {tid}"


def stream_words(tracks: Table, track: int) -> str:
    """A stream, a row of TRACKS: its number, and its device where the rank has several."""
    if not 0 <= track < len(tracks):
        return "stream not recorded"
    devices = np.unique(tracks["device"][tracks["device"] != NULL])
    number = int(tracks["stream"][track])
    words = f"stream {number}" if number != NULL else f"stream {clean(str(tracks['tid'][track]))[:MAX_NAME_CHARS]}"
    return words if len(devices) < 2 else f"device {int(tracks['device'][track])} {words}"
