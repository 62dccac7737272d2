"""Work of `ddprof run` beside the job, inside one guard.

A failure costs one line that names what is missing. The job runs on, and its exit code is returned.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import TypeVar

from ddprof.capture.guard import Guard, say

R = TypeVar("R")


def stated_s(variable: str, default_s: float) -> float:
    """Seconds that an environment variable states, at least a tenth; the default where it states none."""
    try:
        return max(float(os.environ.get(variable, "")), 0.1)
    except ValueError:
        return default_s


def wait_or_kill(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """Wait for a process to end, and end it where it takes too long."""
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def chore(what: str, missing: str, work: Callable[[], R]) -> R | None:
    """The result of `work`; None where it failed or the user interrupted it.

    `what` names the work ("the manifest"), `missing` its effect ("nothing says how the run ended").
    """
    guard = Guard()
    try:
        result = guard.attempt(what, work)
    except KeyboardInterrupt:
        say(f"{what}: interrupted; {missing}")
        return None
    for fault in guard.faults:
        say(f"{fault}; {missing}")
    return result
