"""A command that exists in numbers alone: runs of tuning without a job."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ddprof.slices.tuning.journal import TrialJournal, TrialWatcher
from ddprof.slices.tuning.runs.trial import TrialOrder
from ddprof.trials.document import Held, Predicted, RunPlan, Trial, TrialCandidate, TuneOptions, TuneState


def candidate(name: str, value: int, group: str = "0", share: float = 0.5, is_variant: bool = False) -> TrialCandidate:
    predicted = Predicted(share, share - 0.05, share + 0.05, "finding")
    return TrialCandidate(f"{name}={value}", group, {name: value}, "train.py:7", "input.starved", predicted, is_variant)


@dataclass
class Job:
    """`saves`: share of the step by name of a candidate; `fails`: name or label -> why; `noise`: of a run; `trains`:
    name -> what it trains, where that is not the same."""

    saves: dict[str, float] = field(default_factory=dict)
    noise: float = 0.01
    fails: dict[str, str] = field(default_factory=dict)
    trains: dict[str, str] = field(default_factory=dict)
    seed: int = 1
    took_s: float = 10.0
    makes: int = 1 << 20  # steps that it makes by itself
    made: list[str] = field(default_factory=list)
    draw: Callable[[np.random.Generator], float] = lambda generator: float(generator.normal())

    def __post_init__(self) -> None:
        self._generator = np.random.default_rng(self.seed)

    def run(self, order: TrialOrder, tick: Callable[[], None]) -> Trial:
        self.made.append(order.label)
        tick()
        names = [candidate.name for candidate in order.settings]
        failed = next((self.fails[name] for name in (order.label, *names) if name in self.fails), "")
        left = float(np.prod([1 - self.saves.get(name, 0.0) for name in names]))
        step_us = 100_000.0 * left * float(np.exp(self.noise * self.draw(self._generator)))
        digest = next((self.trains[name] for name in names if name in self.trains), "as ever")
        held = {str(rank): Held(digest, (1.0, 2.0, 3.0 if digest == "as ever" else 3.5), 0.5) for rank in (0, 1)}
        steps, settings = min(order.plan.last, self.makes), tuple(names)
        if failed:
            return Trial(order.label, settings, order.folder.name, self.took_s, failed=failed)
        return Trial(order.label, settings, order.folder.name, self.took_s, steps, step_us, held=held)


class Silent(TrialWatcher):
    """Tells nobody of the progress."""


def going_on(folder: Path, state: TuneState, job: Job) -> TrialJournal:
    """A journal that goes on from a state, and whose diagnosis has been made."""
    made = TrialJournal(folder, state, job.run, Silent())
    made.baseline("diagnosis")
    return made


def journal(folder: Path, job: Job, budget_s: float = 6000.0, allow_numerics: bool = False) -> TrialJournal:
    options = TuneOptions(("train",), budget_s, 40, (), allow_numerics)
    state = TuneState(options=options, cwd=str(folder), started_utc="2026-11-23T12:00:00Z", plan=RunPlan(10, 40))
    return going_on(folder, state, job)
