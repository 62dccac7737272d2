"""What every tracker can be told, and how an open run of one is closed."""

from __future__ import annotations

from typing import Protocol

from ddprof.slices.trackers.content import Content


class TrackedRun(Protocol):
    """A run of an experiment tracker that is open for writing. Its methods raise what the tracker's library does."""

    @property
    def link(self) -> str:
        """Where a person looks at it: a URL, or the folder that it was written to."""

    def log(self, content: Content, step: int) -> None:
        """Write it, as of this training step."""

    def close(self) -> None:
        """Wait until everything is written. A run that the training script opened stays open."""
