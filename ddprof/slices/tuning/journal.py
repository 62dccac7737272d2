"""Journal of all runs in order, written as they end. On resume the same runs are requested in the same order and
returned from it; the first missing one is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Protocol

from msgspec.structs import replace as struct_replace

from ddprof.errors import NoUsableInput, UsageError
from ddprof.slices.tuning.runs.evidence import LEAST_STEPS
from ddprof.slices.tuning.runs.trial import TrialOrder, Window
from ddprof.trials.document import (
    BASELINE,
    DIAGNOSIS,
    FILE,
    TRIALS,
    RunPlan,
    Trial,
    TrialCandidate,
    TuneState,
    free_folder,
    write_document,
)

_LONGEST_BASELINES = 3.0  # times the longest baseline: a run that is not over by then is no faster
_START_UP_S = 60.0  # settings may start more processes


class TrialWatcher(Protocol):
    """Receives tuning's progress."""

    def began(self, label: str, number: int, left_s: float) -> None:
        """A run begins."""

    def tick(self) -> None:
        """Called twice a second while a run goes on."""

    def ended(self, trial: Trial, is_new: bool) -> None:
        """A run has ended, or was in the journal."""


Runner = Callable[[TrialOrder, Callable[[], None]], Trial]


class TrialJournal:
    """The state in its folder, and the means to make one more run."""

    def __init__(self, folder: Path, state: TuneState, runner: Runner, watcher: TrialWatcher) -> None:
        self.folder = folder
        self.state = state
        self._runner = runner
        self._watcher = watcher
        self._asked = 0

    def baseline(self, label: str = BASELINE, window: Window | None = None, plan: RunPlan | None = None) -> Trial:
        """Run the unchanged command."""
        return self._run(label, (), window, plan)

    def trial(self, settings: Sequence[TrialCandidate]) -> Trial:
        """Run the command with these candidates applied; unchanged without any."""
        return self._run(label_of(settings), tuple(settings), None, None)

    def _run(
        self, label: str, settings: tuple[TrialCandidate, ...], window: Window | None, plan: RunPlan | None
    ) -> Trial:
        number, self._asked = self._asked, self._asked + 1
        plan = plan or self.state.plan
        assert plan is not None
        if number < len(self.state.trials):
            trial = self.state.trials[number]
            if trial.label != label:
                raise UsageError(
                    f"{self.folder / FILE}: run {number} is {trial.label!r}, not {label!r}: of another plan"
                )
            self._watcher.ended(trial, is_new=False)
            return trial
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
        anew = replace(order, folder=free_folder(order.folder))  # an interrupted run may have left one
        made = struct_replace(self._runner(anew, self._watcher.tick), budget_s=self.state.options.budget_s)
        self.state.trials.append(made)
        self.save()
        self._watcher.ended(made, is_new=True)
        return made

    @property
    def made(self) -> list[Trial]:
        """The runs requested so far."""
        return self.state.trials[: self._asked]

    @property
    def left_s(self) -> float:
        """Remaining budget, by the runs requested and the budget valid then: a resumed tuning decides alike so far."""
        stated_s = self.state.trials[self._asked].budget_s if self._asked < len(self.state.trials) else None
        budget_s = self.state.options.budget_s if stated_s is None else stated_s
        return budget_s - sum(trial.took_s for trial in self.made)

    @property
    def usual_s(self) -> float:
        """Median time of a run; of the diagnosis where there is no other."""
        timed = [trial.took_s for trial in self.made if trial.label != DIAGNOSIS and not trial.failed]
        return median(timed or [trial.took_s for trial in self.made] or [0.0])

    def affords(self, runs: int) -> bool:
        """True where this many more runs fit the budget."""
        return self.left_s >= runs * self.usual_s

    def save(self) -> None:
        """Write the state, whole or not at all. Raises UsageError."""
        write_document(self.state, self.folder)

    def _timeout_s(self) -> float:
        baselines = [trial.took_s for trial in self.made if not trial.settings]
        if not baselines:
            return max(self.state.options.budget_s, _START_UP_S)
        # A run that is begun may outlast the budget a little: by what it may take to start, no more.
        return min(_LONGEST_BASELINES * max(baselines), max(self.left_s, max(baselines))) + _START_UP_S


def label_of(settings: Sequence[TrialCandidate]) -> str:
    """Name of a run with these settings."""
    return " + ".join(candidate.name for candidate in settings) or BASELINE


WARM_UP = 10  # steps left out at the start of each run: allocation, compilation, DDP's buckets laid out anew
_MOST_WARM_UP = 64  # steps, however much loaders fetch ahead
_TIMED_AT_LEAST = 2 * LEAST_STEPS  # before more are left out at the start of a short job


def shortened(made: Trial) -> RunPlan:
    """The plan for a job that ends by itself: a step fewer than it makes. Raises NoUsableInput where these are few."""
    warm_up = min(WARM_UP, made.steps // 3)
    timed = made.steps - 1 - warm_up
    if timed < LEAST_STEPS:
        raise NoUsableInput(f"the command makes {made.steps} steps: too few to compare (give it 15 or more)")
    return RunPlan(warm_up, timed, made.steps)


def with_warm_up(plan: RunPlan, candidates: Sequence[TrialCandidate]) -> RunPlan:
    """The plan without the steps that loaders feed from batches fetched during the start."""
    deepest = 0
    for candidate in candidates:
        workers, each = candidate.values.get("num_workers", 0), candidate.values.get("prefetch_factor", 2)
        deepest = max(deepest, int(workers) * int(each))
    longer = min(max(plan.warm_up, deepest + 2), _MOST_WARM_UP)
    if plan.most is None:
        return RunPlan(longer, plan.timed)
    longer = min(longer, max(plan.warm_up, plan.last - _TIMED_AT_LEAST))
    return RunPlan(longer, plan.last - longer, plan.most)
