"""The calling line of the script: where a model was wrapped, an optimizer made, a loader iterated."""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

from ddprof.capture.describe.stacks import is_library

_MAX_DEPTH = 64  # frames of frameworks between the script and us (Lightning has some forty)


def script_line() -> dict[str, Any] | None:
    """File, line and function of the innermost frame of the user's own code; None where only libraries call.

    The file is relative to the working directory where it lies below it.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MAX_DEPTH):
        if frame is None:
            return None
        file = frame.f_code.co_filename
        if not is_library(file):
            return {"file": shown_file(file), "line": frame.f_lineno, "function": frame.f_code.co_name}
        frame = frame.f_back
    return None


def shown_file(file: str) -> str:
    """A file, relative to the working directory if below it."""
    here = os.getcwd() + os.sep
    return file.removeprefix(here)
