"""Stacks of this process's threads as plain data (file, line, function, script lines), and how the process ends."""

from __future__ import annotations

import gc
import linecache
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType, TracebackType
from typing import Any

from ddprof.capture.describe import environment
from ddprof.capture.files.call_log import CallLog
from ddprof.capture.guard import Guard
from ddprof.capture.identity import RankIdentity
from ddprof.untrusted.secrets import masked

_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python", "/ddprof/capture/", "/torchinductor_")
_MAX_FRAMES = 128  # of one thread
_MAX_DEPTH = 64  # frames of frameworks between the script and us (Lightning has some forty)
_MAX_THREADS = 64
_MAX_SOURCE_CHARACTERS = 160
_MAX_MESSAGE_CHARACTERS = 2000


@lru_cache(maxsize=4096)
def is_library(file: str) -> bool:
    """True for files other than the user's own code."""
    path = file.replace("\\", "/")
    return path.startswith("<") or any(place in path for place in _LIBRARIES)


def script_frame(frame: FrameType | None, most: int = _MAX_FRAMES) -> FrameType | None:
    """Innermost frame of the user's own code, from `frame` outwards; None where none of `most` is."""
    for _ in range(most):
        if frame is None or not is_library(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None


def script_line() -> dict[str, Any] | None:
    """File, line and function of the innermost frame of the user's own code; None where only libraries call.

    The file is relative to the working directory where it lies below it.
    """
    frame = script_frame(sys._getframe(1), _MAX_DEPTH)
    if frame is None:
        return None
    code = frame.f_code
    return {"file": shown_file(code.co_filename), "line": frame.f_lineno, "function": code.co_name}


def shown_file(file: str) -> str:
    """A file, relative to the working directory if below it."""
    return file.removeprefix(os.getcwd() + os.sep)


def place(frame: FrameType) -> str:
    """The line of a frame as people write it: "train.py:88 tidy()"."""
    name = frame.f_code.co_name
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {name if name[0] == '<' else name + '()'}"


def source_line(file: str, line: int) -> str:
    """The text of a line of a file, "" where it cannot be read."""
    return masked(linecache.getline(file, line).strip())[:_MAX_SOURCE_CHARACTERS]


def main_frames() -> list[dict[str, Any]]:
    """The main thread's stack, innermost first; callable from another thread too."""
    return frames_from(current_frames().get(threading.main_thread().ident or 0))


def threads() -> list[dict[str, Any]]:
    """Every other thread with its stack."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    others = [(ident, frame) for ident, frame in current_frames().items() if ident != main]
    return [{"name": names.get(ident, ""), "frames": frames_from(frame)} for ident, frame in others[:_MAX_THREADS]]


def current_frames() -> dict[int, FrameType]:
    """Every thread's innermost frame, by thread id. Without `uncollected`, Python 3.11 can deadlock here."""
    with uncollected():
        return sys._current_frames()


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection while other threads' frames are read, for the reasons in native/stacks.c."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def frames_from(frame: FrameType | None) -> list[dict[str, Any]]:
    """The frames from one outwards."""
    frames: list[dict[str, Any]] = []
    with uncollected():
        while frame is not None and len(frames) < _MAX_FRAMES:
            frames.append(_frame(frame, frame.f_lineno))
            frame = frame.f_back
    return frames


def last_error(step_ns: int = 0, is_stopped: bool = False) -> dict[str, Any] | None:
    """The exception that ends this process, or its exit with another code than 0 (last_words.py), known once Python has
    printed it; None where it ends normally or `is_stopped` by a signal. `step_ns`: when its last step began; the script
    caught a `sys.exit` before that. Nothing catches `os._exit`.
    """
    error = getattr(sys, "last_value", None)
    if isinstance(error, BaseException) and not is_stopped:
        return error_of(error, getattr(sys, "last_traceback", None))
    at_ns, _, left = getattr(sys, "_ddprof_exit", (0, 0, None))
    is_certain = left is not None and left["type"] == "os._exit"
    return left if is_certain or (at_ns >= step_ns and not is_stopped) else None


def error_of(error: BaseException, trace: TracebackType | None = None) -> dict[str, Any]:
    """An exception; of a long message its two ends, as one that quotes a traceback has its reason last."""
    text = Guard().attempt("its text", lambda: str(error))  # the script's own code
    text, half = "<exception str() failed>" if text is None else text, _MAX_MESSAGE_CHARACTERS // 2
    if len(text) > 2 * half:  # masked before, as a part of a secret looks like none
        text = f"{masked(text[: 8 * half])[:half]} ... {masked(text[-8 * half :])[-half:]}"
    return {"type": type(error).__name__, "message": text, "frames": _raised(error.__traceback__ or trace)}


def _raised(trace: TracebackType | None) -> list[dict[str, Any]]:
    walked = list(traceback.walk_tb(trace))[-_MAX_FRAMES:]
    return [_frame(frame, line) for frame, line in reversed(walked)]


def _frame(frame: FrameType, line: int | None) -> dict[str, Any]:
    file = frame.f_code.co_filename
    described: dict[str, Any] = {"file": file, "line": line or 0, "function": frame.f_code.co_name}
    if not is_library(file):
        described["source"] = source_line(file, line or 0)
    return described


def whereabouts(identity: RankIdentity | None, calls: CallLog | None, steps: int) -> dict[str, Any]:
    """Every thread's stack, the last calls, and the CPU time so far; `steps`: number of closed steps."""
    who = {} if identity is None else {"rank": identity.rank, "host": identity.host, "restart": identity.restart}
    return {
        **who,
        "world_size": identity.world_size if identity else None,
        "pid": identity.pid if identity else None,
        "state": "running",
        "at_ns": time.time_ns(),
        "cpu_ns": time.process_time_ns(),
        "steps_total": steps,
        "process_groups": environment.process_groups(),
        "calls": [] if calls is None else calls.recent(),
        "frames": main_frames(),
        "threads": threads(),
    }


def ended(reason: str, step_ns: int) -> dict[str, Any]:
    """End of this process, whose last step began at `step_ns`: time, exception, the main stack after a signal."""
    stopped = reason in ("watchdog", "signal")
    return {
        "at_ns": time.time_ns(),
        "error": last_error(step_ns, stopped),
        "frames": main_frames() if stopped else [],
    }
