"""Events of this process in bounded memory: windows, batches, pauses, notes."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_RECENT_PAUSES = 4096
_RECENT_BATCHES = 512  # steps
_RECENT_FETCHES = 512
_MAX_NOTES = 64
_RECENT_CALLS = 1024


class Journal:
    """Written by the session and its instrumentors, read by the sidecar, in other threads, too: whoever goes through a
    deque copies it first.
    """

    def __init__(self) -> None:
        self.windows: list[dict[str, Any]] = []
        self.gc: deque[dict[str, int | str]] = deque(maxlen=_RECENT_PAUSES)
        self.checkpoints: deque[dict[str, Any]] = deque(maxlen=_RECENT_PAUSES)
        self.evaluations: deque[dict[str, int | str]] = deque(maxlen=_RECENT_PAUSES)
        self.syncs: dict[tuple[str, str], list[int]] = {}  # (source line, what) -> [count, total ns]
        self.notes: list[str] = []
        # (file, line, collective) of the script -> the library's function that it calls on the way, "package function"
        self.through: dict[tuple[str, int, str], str] = {}
        self.window_calls: deque[dict[str, Any]] = deque(maxlen=_RECENT_CALLS)  # collectives called in trace windows
        self.skipped_optimizer_steps = 0
        self.batch: dict[str, Any] | None = None
        self._batches: deque[list[int]] = deque(maxlen=_RECENT_BATCHES)  # [step, batches, samples, elements]
        self._traced_batches: deque[list[int]] = deque(maxlen=_RECENT_BATCHES)  # of the steps in trace windows
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

    def window_closed(self, record: dict[str, Any]) -> None:
        """Keep a trace window with the batches fetched in its steps, over which the analysis compares ranks."""
        self.windows.append(record)
        self._traced_batches.extend(
            row for row in list(self._batches) if record["first_step"] <= row[0] <= record["last_step"]
        )

    def batches(self) -> list[dict[str, int]]:
        """Batches, samples and elements of the traced and of the recent steps."""
        by_step = {row[0]: row for row in (*self._traced_batches, *self._batches)}
        names = ("step", "batches", "samples", "elements")
        return [dict(zip(names, by_step[step], strict=True)) for step in sorted(by_step)]

    def window_called(self, calls: Iterable[dict[str, Any]], since_ns: int) -> None:
        """Keep the collectives (in the form of the call log) that the script called since some moment."""
        for call in calls:
            line = call["line"]
            if call["entered_ns"] >= since_ns:
                through = self.through.get((line["file"], line["line"], call["op"]), "")
                self.window_calls.append(
                    {"op": call["op"], "entered_ns": call["entered_ns"], **line, "through": through}
                )

    def calling_lines(self, calls: Iterable[dict[str, Any]], starts_ns: Sequence[int]) -> list[dict[str, Any]]:
        """Lines that called collectives, with how often, how long, from when to when and in how many of the steps that
        began at `starts_ns`, of calls as their log has them."""
        lines: dict[tuple[Any, ...], dict[str, Any]] = {}
        step_of: dict[tuple[Any, ...], int] = {}
        for call in calls:
            line, size = call["line"], call["size"]
            place = (call["op"], tuple(size or ()), call["dtype"], line["file"], line["line"])
            if place not in lines:
                through = self.through.get((line["file"], line["line"], call["op"]), "")
                about = {"op": call["op"], "size": size, "dtype": call["dtype"], **line, "through": through}
                span = {"from_ns": call["entered_ns"], "to_ns": call["entered_ns"]}
                lines[place] = {**about, "calls": 0, "steps": 0, "taken_ns": 0, **span}
            step = bisect_right(starts_ns, call["entered_ns"])
            lines[place]["steps"] += step_of.get(place) != step
            step_of[place] = step
            lines[place]["taken_ns"] += max(0, (call["left_ns"] or call["entered_ns"]) - call["entered_ns"])
            lines[place]["calls"] += 1
            lines[place]["to_ns"] = call["left_ns"] or call["entered_ns"]
        return list(lines.values())

    def note(self, text: str) -> None:
        """Add a sentence to the sidecar's `notes`, once."""
        if text not in self.notes and len(self.notes) < _MAX_NOTES:
            self.notes.append(text)
