"""Every run in order, written down as it ends. Who resumes asks for the same runs in the same order, and gets those
that were made; the first one that is not there is run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Protocol

import msgspec

from ddprof.errors import NoUsableInput, UsageError
from ddprof.outside.regular_files import read_bounded
from ddprof.tune.model import BASELINE, DIAGNOSIS, SCHEMA, RunPlan, Trial, TrialCandidate, TuneState
from ddprof.tune.runs.trial import TrialOrder, Window

FILE = "tune.json"
TRIALS = "trials"
_MAX_BYTES = 256 << 20
_LONGEST_BASELINES = 3.0  # times the longest baseline: a run that is not over by then is no faster
_START_UP_S = 60.0  # settings may start more processes


class TrialWatcher(Protocol):
    """Is told how tuning goes on."""

    def began(self, label: str, number: int, left_s: float) -> None:
        """A run begins."""

    def tick(self) -> None:
        """It goes on; called twice a second."""

    def ended(self, trial: Trial, is_new: bool) -> None:
        """It has ended, or had been made before."""


Runner = Callable[[TrialOrder, Callable[[], None]], Trial]


class TrialJournal:
    """The state in its folder, and the way to one more run."""

    def __init__(self, folder: Path, state: TuneState, runner: Runner, watcher: TrialWatcher) -> None:
        self.folder = folder
        self.state = state
        self._runner = runner
        self._watcher = watcher
        self._asked = 0

    def baseline(self, label: str = BASELINE, window: Window | None = None, plan: RunPlan | None = None) -> Trial:
        """A run of the command as it is."""
        return self._run(label, (), window, plan)

    def trial(self, settings: Sequence[TrialCandidate]) -> Trial:
        """A run with these candidates applied; the command as it is without any."""
        return self._run(label_of(settings), tuple(settings), None, None)

    def _run(
        self, label: str, settings: tuple[TrialCandidate, ...], window: Window | None, plan: RunPlan | None
    ) -> Trial:
        number, self._asked = self._asked, self._asked + 1
        plan = plan or self.state.plan
        assert plan is not None
        if number < len(self.state.trials):
            known = self.state.trials[number]
            if known.label != label:
                raise UsageError(
                    f"{self.folder / FILE}: run {number} is {known.label!r}, not {label!r}: of another plan"
                )
            self._watcher.ended(known, is_new=False)
            return known
        slug = re.sub(r"[^A-Za-z0-9=._-]+", "-", label).strip("-")[:60]
        order = TrialOrder(
            label=label,
            folder=self.folder / TRIALS / f"{number:03d}-{slug}",
            command=self.state.options.command,
            plan=plan,
            settings=settings,
            timeout_s=self._timeout_s(),
            window=window,
        )
        self._watcher.began(label, number, self.left_s)
        made = self._runner(_fresh(order), self._watcher.tick)
        self.state.trials.append(made)
        self.save()
        self._watcher.ended(made, is_new=True)
        return made

    @property
    def made(self) -> list[Trial]:
        """The runs that were asked for so far."""
        return self.state.trials[: self._asked]

    @property
    def left_s(self) -> float:
        """What is left of the budget. Counted in the runs that were asked for: so whoever resumes decides alike."""
        return self.state.options.budget_s - sum(trial.took_s for trial in self.made)

    @property
    def usual_s(self) -> float:
        """How long a run takes: the median, of the diagnosis where there is no other."""
        timed = [trial.took_s for trial in self.made if trial.label != DIAGNOSIS and not trial.failed]
        return median(timed or [trial.took_s for trial in self.made] or [0.0])

    def affords(self, runs: int) -> bool:
        """Whether so many more runs fit into the budget."""
        return self.left_s >= runs * self.usual_s

    def save(self) -> None:
        """Write the state, whole or not at all. Raises UsageError."""
        path = self.folder / FILE
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            fresh = path.with_name(f".{FILE}.{os.getpid()}")
            fresh.write_bytes(msgspec.json.format(msgspec.json.encode(self.state), indent=1))
            os.replace(fresh, path)
        except OSError as error:
            raise UsageError(f"{path}: not written: {error.strerror}") from error

    def _timeout_s(self) -> float:
        baselines = [trial.took_s for trial in self.made if not trial.settings]
        if not baselines:
            return max(self.state.options.budget_s, _START_UP_S)
        # A run that is begun may outlast the budget a little: by what it may take to start, no more.
        return min(_LONGEST_BASELINES * max(baselines), max(self.left_s, max(baselines))) + _START_UP_S


def label_of(settings: Sequence[TrialCandidate]) -> str:
    """What a run with these settings is called."""
    return " + ".join(candidate.name for candidate in settings) or BASELINE


def read_state(folder: Path) -> TuneState:
    """The state that a folder holds. Raises NoUsableInput."""
    path = folder / FILE
    try:
        state = msgspec.json.decode(read_bounded(path, _MAX_BYTES), type=TuneState)
    except OSError as error:
        raise NoUsableInput(f"{path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise NoUsableInput(f"{path}: damaged: {error}") from None
    if state.schema != SCHEMA:
        raise NoUsableInput(f"{path}: schema is {state.schema[:40]!r}, wanted {SCHEMA!r}")
    return state


def _fresh(order: TrialOrder) -> TrialOrder:
    """The same in a folder that is not there: an interrupted run may have left one."""
    folder, attempt = order.folder, 1
    while folder.exists():
        attempt += 1
        folder = order.folder.with_name(f"{order.folder.name}.{attempt}")
    return replace(order, folder=folder)
