"""A window that the script itself asks for: `with ddprof.capture():` (ddprof/marks.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ddprof.capture.files.control import LONGEST_WINDOW
from ddprof.capture.guard import Guard
from ddprof.capture.journal import Journal
from ddprof.capture.window.plan import WindowPlan

REASON = "ddprof.capture"


class Capturing(Protocol):
    """What it needs of the session."""

    guard: Guard
    journal: Journal
    plan: WindowPlan
    tracker: Any


class WindowInCode:
    """`asked` for a number of steps from the next one on; `done` as the part that is to be traced ends."""

    def __init__(self, session: Capturing) -> None:
        self._session = session
        self.asked: Callable[[int], Any] = session.guard.wrap(self._asked)
        self.done: Callable[[], Any] = session.guard.wrap(self._done)

    def _asked(self, steps: int) -> None:
        tracker = self._session.tracker
        self._session.plan.request(tracker.index + 1, min(steps, LONGEST_WINDOW), REASON)
        tracker.calm_until = 0

    def _done(self) -> None:
        tracker = self._session.tracker
        if self._session.plan.end_with(tracker.index):
            self._session.journal.note(f"{REASON}: no step began inside it, so there is no trace of it")
        tracker.calm_until = 0
