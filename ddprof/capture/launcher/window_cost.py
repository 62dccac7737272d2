"""Cost of trace windows by the job's step rings; where it is too high, later windows record less.

One process decides for all ranks and from which step on, as differences in recording would look like slow ranks.
Windows sample stacks more often and record every operator's shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from ddprof.capture.files.control import INSTRUMENTS, LESS, Request, send
from ddprof.capture.launcher.live import LiveRank, first_step_for_all, read_ranks

USUAL_MOST = 0.15  # of a step; docs/accuracy.md prices what a step takes without the profiler up to about that well
_MIN_STEPS = 8  # outside windows, before their median says anything (analyzers/job/whole_run/unprofiled_steps.py)
_RECENT = 512  # steps of 1 ms between two looks
_NO_WINDOW = len(INSTRUMENTS) + 1


class WindowCost:
    """Judges each window once. `most`: allowed share by which a step in a window may be longer, None for the default;
    above a requested share no window opens once all instruments are omitted.
    """

    def __init__(self, folder: Path, most: float | None) -> None:
        self._folder = folder
        self._most = USUAL_MOST if most is None else most
        self._last_level = len(INSTRUMENTS) if most is None else _NO_WINDOW
        self._level = 0
        self._judged = -1

    def tick(self) -> None:
        """Check once. Raises OSError where the folder cannot be written."""
        if self._level < self._last_level:
            self.look(read_ranks(self._folder, recent=_RECENT))

    def look(self, ranks: Sequence[LiveRank]) -> None:
        """Ask for less where the last window cost too much on some rank."""
        last = max((step.number for rank in ranks for step in rank.steps if step.profiled), default=-1)
        costs = [cost for rank in ranks if (cost := _cost(rank, self._judged)) is not None]
        if last <= self._judged or len(costs) < len(ranks):
            return
        self._judged = last
        if max(costs) > self._most and self._level < self._last_level:
            self._level += 1
            reason = f"steps in a window took {100 * max(costs):.0f} % longer, {100 * self._most:.0f} % is allowed"
            send(self._folder, Request(LESS, first_step_for_all(ranks), self._level, reason))


def _cost(rank: LiveRank, after_step: int) -> float | None:
    """Share of a step by which a rank's steps in windows after `after_step` were longer; None while a window is open,
    or with too few steps. The step after a window is excluded, as it pays for the export.
    """
    traced = [step for step in rank.steps if step.profiled and step.number > after_step]
    windows = {step.number + 1 for step in rank.steps if step.profiled}
    bare = [step for step in rank.steps if not step.profiled and step.number not in windows]
    if not traced or len(bare) < _MIN_STEPS or bare[-1].number < traced[-1].number:
        return None
    took, usual = (median(step.end_ns - step.start_ns for step in steps) for steps in (traced, bare))
    return took / max(usual, 1) - 1
