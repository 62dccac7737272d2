"""Work of `ddprof run` beside the job, inside one guard.

A failure costs one line that names what is missing. The job runs on, and its exit code is returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ddprof.capture.guard import Guard, say

R = TypeVar("R")


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
