"""What has happened in this process, in bounded memory: windows, batches, pauses, notes."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

_RECENT_PAUSES = 4096
_RECENT_BATCHES = 512  # steps
_RECENT_FETCHES = 512
_MAX_NOTES = 64


class Journal:
    """Written by the session and its instrumentors, read by the sidecar."""

    def __init__(self) -> None:
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
        self.nccl_log: Path | None = None  # where NCCL writes, if it was asked to

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
        """Batches, samples and elements of the recent steps."""
        return [dict(zip(("step", "batches", "samples", "elements"), row, strict=True)) for row in self._batches]

    def note(self, text: str) -> None:
        """Add a sentence to the sidecar's `notes`, unless it is there already."""
        if text not in self.notes and len(self.notes) < _MAX_NOTES:
            self.notes.append(text)
