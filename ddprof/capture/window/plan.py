"""Steps that open and close trace windows, planned or asked by the script: `with ddprof.capture():` (marks.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ddprof.capture.files.control import LESS, LONGEST_WINDOW, Request
from ddprof.capture.guard import Guard
from ddprof.capture.journal import Journal

REASON = "ddprof.capture"


class Less(NamedTuple):
    """Number of INSTRUMENTS that windows from a step on omit, and why; beyond their number no window opens."""

    first_step: int
    left_out: int = 0
    reason: str = ""


class WindowPlan:
    """Windows of `window_steps` steps: after `skip_steps`, then every `every_steps` (0: only one), and on request."""

    def __init__(self, skip_steps: int, window_steps: int, every_steps: int = 0, automatic: bool = True) -> None:
        self._window_steps = max(window_steps, 1)
        # A period shorter than the window would leave no step between two windows.
        self._every_steps = max(every_steps, self._window_steps + 1) if every_steps else 0
        self._next: int | None = max(skip_steps, 0) if automatic else None
        self._requested: tuple[int, int, str] | None = None  # first step, number of steps, reason
        self._end = 0
        self._less = self._before = Less(0)
        self.idle = self._next is None  # no window is planned or asked for; an attribute, because every step reads it

    def request(self, first_step: int, steps: int, reason: str) -> None:
        """Request a window at an absolute step; for a past step it opens at the next one."""
        self._requested = (first_step, max(steps, 1), reason)
        self.idle = False

    def obey(self, request: Request) -> None:
        """Carry out a request of the launcher or `ddprof trigger` on windows."""
        if request.action == "trace":
            self.request(request.first_step, request.steps, request.reason)
        elif request.action == LESS:
            self._before, self._less = self._less, Less(request.first_step, request.steps, request.reason)

    def less_at(self, step: int) -> Less:
        """Instruments that a window opening at `step` omits."""
        return self._less if step >= self._less.first_step else self._before

    def opens_at(self, step: int) -> str | None:
        """Reason for a window at `step` ("planned", or the request's); None without one. Consumes the opening."""
        if self._requested is not None and step >= self._requested[0]:
            _, steps, reason = self._requested
            self._end = step + steps
            self._requested = None
            self.idle = self._next is None
            return reason
        if self._next is not None and step >= self._next:
            self._end = step + self._window_steps
            self._next = step + self._every_steps if self._every_steps else None
            self.idle = self._next is None and self._requested is None
            return "planned"
        return None

    def end_with(self, step: int) -> bool:
        """End the last opened window with `step` at the latest, and drop a pending request. True if there was one."""
        dropped = self._requested is not None
        self._requested = None
        self._end = min(self._end, step + 1)
        self.idle = self._next is None
        return dropped

    @property
    def last_step(self) -> int:
        """The last step of the last opened window."""
        return self._end - 1

    def closes_at(self, step: int) -> bool:
        """True where the open window ends at `step`."""
        return step >= self._end


class _Capturing(Protocol):
    """The session as this module needs it."""

    guard: Guard
    journal: Journal
    plan: WindowPlan
    tracker: Any


class WindowInCode:
    """Requests from code: `asked` for a number of steps from the next one on; `done` at the end of the traced part."""

    def __init__(self, session: _Capturing) -> None:
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
