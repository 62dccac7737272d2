"""Where the threads of this process are, as plain data: file, line, function, and the script's own lines."""

from __future__ import annotations

import linecache
import sys
import threading
import traceback
from functools import lru_cache
from types import FrameType, TracebackType
from typing import Any

_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "/ddprof/capture/")
_MAX_FRAMES = 128  # of one thread
_MAX_THREADS = 64
_MAX_SOURCE_CHARACTERS = 160
_MAX_MESSAGE_CHARACTERS = 2000


@lru_cache(maxsize=4096)
def is_library(file: str) -> bool:
    """Whether a file is not the user's own code."""
    path = file.replace("\\", "/")
    return path.startswith("<") or any(place in path for place in _LIBRARIES)


def main_frames() -> list[dict[str, Any]]:
    """The stack of the main thread, innermost first; asked from another thread, too."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return frames_from(frame)


def threads() -> list[dict[str, Any]]:
    """Every other thread with its stack."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    others = [(ident, frame) for ident, frame in sys._current_frames().items() if ident != main]
    return [{"name": names.get(ident, ""), "frames": frames_from(frame)} for ident, frame in others[:_MAX_THREADS]]


def frames_from(frame: FrameType | None) -> list[dict[str, Any]]:
    """The frames from one outwards."""
    found: list[dict[str, Any]] = []
    while frame is not None and len(found) < _MAX_FRAMES:
        found.append(_frame(frame, frame.f_lineno))
        frame = frame.f_back
    return found


def last_error() -> dict[str, Any] | None:
    """The exception that ends this process, None where it ends in order. Known once Python has printed it."""
    error = getattr(sys, "last_value", None)
    if not isinstance(error, BaseException):
        return None
    return {
        "type": type(error).__name__,
        "message": str(error)[:_MAX_MESSAGE_CHARACTERS],
        "frames": _raised(error.__traceback__ or getattr(sys, "last_traceback", None)),
    }


def _raised(trace: TracebackType | None) -> list[dict[str, Any]]:
    walked = list(traceback.walk_tb(trace))[-_MAX_FRAMES:]
    return [_frame(frame, line) for frame, line in reversed(walked)]


def _frame(frame: FrameType, line: int | None) -> dict[str, Any]:
    file = frame.f_code.co_filename
    found: dict[str, Any] = {"file": file, "line": line or 0, "function": frame.f_code.co_name}
    if not is_library(file):
        found["source"] = linecache.getline(file, line or 0).strip()[:_MAX_SOURCE_CHARACTERS]
    return found
