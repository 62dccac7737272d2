"""How tuning goes on, on stderr: a line for each run that has ended, and while one runs, where a person watches, what
runs, the time left and the best so far."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ddprof.outside.plain_text import clean
from ddprof.trials.model import BASELINE, DIAGNOSIS, Trial
from ddprof.units import format_us


class TuneView:
    """A TrialWatcher on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._running: tuple[str, int, float] | None = None  # label, number, when it began
        self._left_s = 0.0
        self._best: tuple[float, str] | None = None
        self._baseline_us: float | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """The line at the bottom, where somebody watches."""
        if not self._console.is_terminal:
            yield
            return
        with Live(Text(""), console=self._console, transient=True, auto_refresh=False) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def began(self, label: str, number: int, left_s: float) -> None:
        """A run begins."""
        self._running, self._left_s = (label, number, time.monotonic()), left_s
        self.tick()

    def tick(self) -> None:
        """Draw the line anew."""
        if self._live is not None and self._running is not None:
            label, number, began_s = self._running
            passed_s = time.monotonic() - began_s
            left = f"{max(0.0, self._left_s - passed_s):.0f} s of the budget left"
            line = f"run {number}  {label}  {passed_s:.0f} s; {left}{self._best_words()}"
            self._live.update(Text(clean(line), style="bold", overflow="ellipsis", no_wrap=True), refresh=True)

    def ended(self, trial: Trial, is_new: bool) -> None:
        """A line for the run."""
        told = trial.failed or (format_us(trial.step_us) + " per step" if trial.step_us is not None else "not timed")
        if trial.label == DIAGNOSIS and not trial.failed:
            told = f"traced, {trial.steps} steps"
        made = f"{trial.took_s:.0f} s" if is_new else "made before"
        note = f"; {trial.note}" if trial.note else ""
        self._console.print(Text(clean(f"ddprof: {trial.label}: {told} ({made}){note}")), soft_wrap=True)
        self._running = None
        if trial.step_us is None or trial.label == DIAGNOSIS:
            return
        if trial.label == BASELINE:
            self._baseline_us = trial.step_us
        elif self._best is None or trial.step_us < self._best[0]:
            self._best = (trial.step_us, trial.label)

    def _best_words(self) -> str:
        if self._best is None or self._baseline_us is None or self._best[0] >= self._baseline_us:
            return ""
        return (
            f"; best run so far {format_us(self._best[0])} ({self._best[1]}), as it is {format_us(self._baseline_us)}"
        )
