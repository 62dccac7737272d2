"""The session's interface for instrumentors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from ddprof.capture.describe.observed import Observed
from ddprof.capture.files.call_log import CallLog
from ddprof.capture.files.config import CaptureConfig
from ddprof.capture.files.step import Step
from ddprof.capture.guard import Guard
from ddprof.capture.journal import Journal
from ddprof.capture.stacks.collector import TrainingThread
from ddprof.capture.steps.unmarked import UnmarkedSteps
from ddprof.capture.window.annotate import Annotator


class PhaseTimers(TrainingThread, Protocol):
    """The readable part of the phase timers, in Python or in C."""

    @property
    def last_end_ns(self) -> int:
        """End of the latest phase."""

    @property
    def booked(self) -> int:
        """Number of closed steps."""

    def logged(self) -> list[tuple[Step, bool]]:
        """The first and the recent steps, each with whether it was disturbed."""


class Hub(Protocol):
    """The session's side towards its instrumentors.

    What can be called here is guarded: it raises nothing, and does nothing once capture is off.
    """

    guard: Guard
    journal: Journal
    observed: Observed
    annotator: Annotator
    folder: Path  # the run folder
    config: CaptureConfig
    calls: CallLog | None  # the last collectives that the script called; None before the rank is known
    begin: Callable[..., Any]  # (phase, name of its range or None): a phase begins. Returns what `end` takes
    end: Callable[..., Any]  # (phase, what `begin` returned): it ends
    optimizer_begins: Callable[[int], object]  # (its id): it is about to step
    optimizer_stepped: Callable[..., Any]  # (optimizer): it has stepped, or its GradScaler skipped the step
    unmarked: list[UnmarkedSteps]  # to be told of what repeats; empty once optimizers or the script mark the steps
    watch_root: Callable[[Any], object]  # (module): time this model's calls, whatever it is
    process_group_exists: Callable[[], Any]  # torch.distributed is initialised: the rank is known
    user_profiler_starts: Callable[[], Any]  # the script is about to start a profiler of its own

    @property
    def tracker(self) -> PhaseTimers:
        """The phase timers."""
