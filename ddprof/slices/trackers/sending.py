"""Trackers behind one guard: a failing library or an unreachable server costs one line.

Tracker libraries raise anything, and some end the process; neither may end the command or affect another tracker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Protocol, TypeVar, cast

from ddprof.slices.trackers.content import Content
from ddprof.slices.trackers.destination import TRACKERS, Target
from ddprof.untrusted.plain_text import clean

T = TypeVar("T")
Say = Callable[[str], None]
_MAX_REASON = 300  # characters of a library's message


class TrackedRun(Protocol):
    """A run of an experiment tracker, open for writing. Its methods raise what the tracker's library raises."""

    @property
    def link(self) -> str:
        """Place to look at it: a URL, or the folder that it was written to."""

    def log(self, content: Content, step: int) -> None:
        """Log the content at this training step."""

    def close(self) -> None:
        """Wait until everything is written. A run that the training script opened stays open."""


class Sending:
    """The trackers that a command writes to. A failure is reported once; that tracker is then skipped."""

    def __init__(self, targets: Sequence[Target], name: str, say: Say, live: bool = False) -> None:
        self._say = say
        self._open: dict[str, TrackedRun] = {}
        self.failed: list[str] = []
        for target in targets:
            opened = self._attempt(target.tracker, partial(_opened, target, name, live))
            if opened is not None:
                self._open[target.tracker] = opened

    def log(self, content: Content, step: int = 0) -> None:
        """Log to every tracker that still works."""
        for name, run in list(self._open.items()):
            self._attempt(name, partial(run.log, content, step))

    def close(self) -> None:
        """Write the rest and print where it can be seen."""
        for name, run in list(self._open.items()):
            link = self._attempt(name, partial(_closed, run))
            if link is not None:
                self._say(f"{name}: {link}")
        self._open.clear()

    def _attempt(self, name: str, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except (Exception, SystemExit) as error:
            reason = clean(" ".join(str(error).split()))[:_MAX_REASON] or type(error).__name__
            self._say(f"{name}: not written: {reason}")
            self._open.pop(name, None)
            self.failed.append(name)
            return None


def _opened(target: Target, name: str, live: bool) -> TrackedRun:
    _, kind = TRACKERS[target.tracker]
    module = import_module(f"ddprof.slices.trackers.{target.tracker}_run")  # brings the tracker's library
    return cast(TrackedRun, getattr(module, kind)(name, target.place, live))


def _closed(run: TrackedRun) -> str:
    link = run.link
    run.close()
    return link
