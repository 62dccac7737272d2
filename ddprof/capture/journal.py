"""What has happened in this process, in bounded memory: steps, windows, pauses, notes."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Any

from ddprof.capture.steps import Step

_FIRST_STEPS = 64  # the start of a run and its recent past are both worth keeping
_RECENT_STEPS = 4096
_RECENT_PAUSES = 4096
_RECENT_BATCHES = 512  # steps
_RECENT_FETCHES = 512
_MAX_NOTES = 64
_WARM_STEPS = 2  # bare steps left out at the start: lazy initialisation, DDP's first bucket order


class Journal:
    """Written by the session, read by the sidecar."""

    def __init__(self) -> None:
        self._first: list[Step] = []
        self._recent: deque[Step] = deque(maxlen=_RECENT_STEPS)
        self.step_count = 0
        self.windows: list[dict[str, Any]] = []
        self.gc: deque[dict[str, int]] = deque(maxlen=_RECENT_PAUSES)
        self.checkpoints: deque[dict[str, Any]] = deque(maxlen=_RECENT_PAUSES)
        self.syncs: dict[tuple[str, str], list[int]] = {}  # (source line, what) -> [count, total ns]
        self.notes: list[str] = []
        self.skipped_optimizer_steps = 0
        self.batch: dict[str, Any] | None = None
        self._batches: deque[list[int]] = deque(maxlen=_RECENT_BATCHES)  # [step, batches, samples, elements]
        self.fetches: deque[list[int]] = deque(maxlen=_RECENT_FETCHES)  # loaders without workers
        self.gradient_ready: dict[str, Any] | None = None
        self._bare_ns: deque[int] = deque(maxlen=512)
        self._profiled_ns: deque[int] = deque(maxlen=512)
        self._said: set[str] = set()
        self._after_window = False

    def step(self, step: Step, disturbed: bool) -> None:
        """Book a closed step. `disturbed` steps (our compression ran, or the last one) say nothing about our
        overhead."""
        self.step_count += 1
        if len(self._first) < _FIRST_STEPS:
            self._first.append(step)
        else:
            self._recent.append(step)
        if step.profiled:
            self._profiled_ns.append(step.end_ns - step.start_ns)
        elif not disturbed and not self._after_window and step.number >= _WARM_STEPS:
            self._bare_ns.append(step.end_ns - step.start_ns)
        self._after_window = step.profiled  # the step after a window still waits for peers whose export took longer

    def batch_fetched(self, step: int, samples: int, elements: int) -> None:
        """Book a batch to a step: its samples, and the elements of all its tensors."""
        batches = self._batches
        if batches and batches[-1][0] == step:
            last = batches[-1]
            last[1] += 1
            last[2] += samples
            last[3] += elements
        else:
            batches.append([step, 1, samples, elements])

    def batches(self) -> list[dict[str, int]]:
        """What the recent steps were fed."""
        return [dict(zip(("step", "batches", "samples", "elements"), row, strict=True)) for row in self._batches]

    def steps(self) -> list[Step]:
        """The steps kept: the first ones and the recent ones."""
        return [*self._first, *self._recent]

    def note(self, text: str) -> None:
        """A sentence for the sidecar's `notes`, once."""
        if text not in self.notes and len(self.notes) < _MAX_NOTES:
            self.notes.append(text)

    def first_time(self, what: str) -> bool:
        """Whether this is the first call with `what`."""
        if what in self._said:
            return False
        self._said.add(what)
        return True

    def step_medians(self) -> dict[str, int | None]:
        """Bare against profiled steps (median, ns)."""
        return {
            "bare_step_ns": int(median(self._bare_ns)) if self._bare_ns else None,
            "profiled_step_ns": int(median(self._profiled_ns)) if self._profiled_ns else None,
        }
