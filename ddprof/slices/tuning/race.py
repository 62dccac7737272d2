"""A race of candidates against one base, in rounds: clear losers drop out, so that time goes to the undecided.

Two runs train the same where the parameters of each rank are after the same number of steps, bit by bit. Where the
baseline does not repeat itself bit by bit (atomic sums of a device, random augmentation in workers) no setting can be
held to it: then how far a run is from the baseline is held against how far baselines are from each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ddprof.slices.tuning.journal import TrialJournal, shortened, with_warm_up
from ddprof.slices.tuning.runs.trial import TOO_FEW_STEPS
from ddprof.trials.document import REJECTED, Held, MeasuredGain, Results, Trial, TrialCandidate
from ddprof.trials.paired import ERROR, LEAST_GAIN, LOST, MOST_PAIRS, OPEN, WON, gain, half_width, looks_at, outcome
from ddprof.units import format_share

FAILED = "failed"
# Rounding grows by orders of magnitude in training, so no more than the order of magnitude is compared.
SAME_ORDER = 10.0
UNKNOWN = Results("unknown", None, None, None)
_BLOCK = 3  # candidates that share one run of the base, which is then at most three runs away from each of them


@dataclass
class Entry:
    """Settings tried on top of a base. `logs`: by round, log(step with / step of the base beside it)."""

    settings: tuple[TrialCandidate, ...]
    error: float = ERROR
    state: str = OPEN
    why: str = ""
    logs: dict[int, float] = field(default_factory=dict)
    sameness: Results = UNKNOWN
    trials: list[Trial] = field(default_factory=list)

    @property
    def candidate(self) -> TrialCandidate:
        """The candidate that is added to the base."""
        return self.settings[-1]

    @property
    def pairs(self) -> list[float]:
        """The logs in order."""
        return [self.logs[number] for number in sorted(self.logs)]

    @property
    def gain(self) -> MeasuredGain | None:
        """Saving as a share of the base's step."""
        return gain(self.pairs, self.error)


class Race:
    """A race of entries against one base, in rounds on one journal."""

    def __init__(
        self, journal: TrialJournal, base: Sequence[TrialCandidate], entries: Sequence[Entry], allow_numerics: bool
    ) -> None:
        self.journal = journal
        self.base = tuple(base)
        self.entries = list(entries)
        self._allow_numerics = allow_numerics
        self._round = 0
        self._base_failures = 0
        self._base_failed = ""

    def run(self, reserve: int = 0) -> None:
        """Run pairs until everything is decided, or the budget is spent except `reserve` runs."""
        while self.open and not self.base_failed:
            if not self._one_round(self.open, reserve):
                return
            self._judge()

    def refine(self, entry: Entry) -> None:
        """Run more pairs of a winner until its gain is as exact as findings report it, or the budget is spent."""
        while entry.state == WON and len(entry.logs) < MOST_PAIRS and not self.base_failed:
            half = half_width(entry.pairs, entry.error)
            if half is not None and half <= LEAST_GAIN:
                return
            if not self._one_round([entry], 0):
                return
            if outcome(entry.pairs, entry.error) == LOST:
                entry.state, entry.why = LOST, "the gain did not last"

    @property
    def base_failed(self) -> str:
        """The reason why the base fails by now; "" where it runs."""
        return self._base_failed if self._base_failures >= _MOST_BASE_FAILURES else ""

    @property
    def open(self) -> list[Entry]:
        """Undecided entries."""
        return [entry for entry in self.entries if entry.state == OPEN]

    def _one_round(self, entries: Sequence[Entry], reserve: int) -> bool:
        """Run each entry once, in blocks around a run of the base, odd rounds backwards; False without budget."""
        entries = self._within_budget(entries, reserve)
        number, self._round = self._round, self._round + 1
        for start in range(0, len(entries), _BLOCK):
            block = [entry for entry in entries[start : start + _BLOCK] if entry.state in (OPEN, WON)]
            if block and self.journal.affords(1 + len(block) + reserve):
                self._one_block(number, block)
        return bool(entries)

    def _within_budget(self, entries: Sequence[Entry], reserve: int) -> Sequence[Entry]:
        """Entries for which two more rounds are affordable, or else the first for one round."""
        if not self.journal.affords(2 + reserve):
            return ()
        ahead = sorted(entries, key=_ahead)
        while len(ahead) > 1 and not self.journal.affords(_ROUNDS * runs_of(len(ahead)) + reserve):
            ahead.pop()
        return [entry for entry in entries if entry in ahead]

    def _one_block(self, number: int, block: Sequence[Entry]) -> None:
        made: list[tuple[Entry, Trial]] = []
        base: Trial | None = None
        for entry in [None, *block] if number % 2 == 0 else [*reversed(block), None]:
            if entry is None:
                base = self._base_run(number)
            else:
                made.append((entry, self.journal.trial(entry.settings)))
        assert base is not None
        if base.step_us is None:
            self._base_failures += 1
            self._base_failed = base.failed
        for entry, trial in made:
            self._book(number, entry, trial, base)

    def _base_run(self, number: int) -> Trial:
        """A run of the base. The first shows whether the job makes the planned steps: if not, all follow a new plan."""
        made, state = self.journal.trial(self.base), self.journal.state
        plan = state.plan
        assert plan is not None
        is_short = 0 < made.steps < plan.last or made.steps == plan.most  # the latter where tuning goes on from it
        if number or self.base or not is_short or made.failed not in ("", TOO_FEW_STEPS):
            return made
        state.plan = with_warm_up(shortened(made), state.candidates or ())
        return self.journal.trial(self.base)

    def _book(self, number: int, entry: Entry, trial: Trial, base: Trial) -> None:
        entry.trials.append(trial)
        if trial.step_us is None:
            entry.state, entry.why = FAILED, trial.failed
            return
        baselines = [
            made.held for made in self.journal.made if not made.settings and made.held and made.steps == trial.steps
        ]
        entry.sameness = compare(trial.held, baselines)
        if entry.sameness.kind == "differs" and not self._allow_numerics:
            entry.state, entry.why = REJECTED, "it changes what is trained (--allow-numerics)"
        elif base.step_us is not None:
            entry.logs[number] = math.log(trial.step_us / base.step_us)

    def _judge(self) -> None:
        for entry in self.open:
            if looks_at(len(entry.logs)):
                entry.state = outcome(entry.pairs, entry.error)
                entry.why = _why_lost(entry) if entry.state == LOST else ""
        for entry in self.open:
            better = next((rival for rival in self.entries if _is_clearly_better(rival, entry)), None)
            if better is not None:
                entry.state, entry.why = LOST, f"slower than {better.candidate.name} in every round"


_ROUNDS = 2  # more are worth beginning with
_MOST_BASE_FAILURES = 2  # a command that fails by itself cannot be tuned


def runs_of(entries: int) -> int:
    """Number of runs in one round: of each entry, and of the base for each block of them."""
    return entries + -(-entries // _BLOCK)


def _ahead(entry: Entry) -> float:
    gain = entry.gain
    return -(gain.share if gain is not None else entry.candidate.predicted.share)


def _why_lost(entry: Entry) -> str:
    gain = entry.gain
    assert gain is not None
    if gain.high is not None and gain.high < LEAST_GAIN:
        return f"gains less than {format_share(LEAST_GAIN)} of the step"
    if gain.pairs >= MOST_PAIRS:
        return f"undecided after {gain.pairs} pairs of runs"
    return f"gained less than {format_share(LEAST_GAIN)} of the step in each of {gain.pairs} pairs"


def _is_clearly_better(rival: Entry, entry: Entry) -> bool:
    """True for a rival value that was faster in each of two rounds, by a reportable gain, or won and is no slower."""
    if rival is entry or rival.candidate.group != entry.candidate.group or rival.state not in (OPEN, WON):
        return False
    both = sorted(set(rival.logs) & set(entry.logs))
    if len(both) < 2:
        return False
    apart = [entry.logs[number] - rival.logs[number] for number in both]
    mean = sum(apart) / len(apart)
    return (min(apart) > 0 and mean > LEAST_GAIN) or (rival.state == WON and mean >= 0)


def compare(trial: Mapping[str, Held], baselines: Sequence[Mapping[str, Held]]) -> Results:
    """Compare a run with the baselines so far, rank by rank."""
    comparable = [baseline for baseline in baselines if set(baseline) & set(trial)]
    if not trial or not comparable:
        return UNKNOWN
    if any(_are_equal(trial, baseline) for baseline in comparable):
        return Results("same", 0.0, None, None)
    pairs = [(first, second) for number, first in enumerate(comparable) for second in comparable[:number]]
    if not pairs:
        return UNKNOWN  # whether the baseline repeats itself is not known yet
    distance = min(_distance(trial, baseline) for baseline in comparable)
    among = max(_distance(*pair) for pair in pairs)
    repeats = any(_are_equal(*pair) for pair in pairs)
    kind = "like_baseline" if not repeats and distance <= among * SAME_ORDER else "differs"
    return Results(kind, distance, among, _losses(trial, comparable[-1]))


def _are_equal(first: Mapping[str, Held], second: Mapping[str, Held]) -> bool:
    return set(first) == set(second) and all(first[rank].digest == second[rank].digest for rank in first)


def _distance(first: Mapping[str, Held], second: Mapping[str, Held]) -> float:
    """Relative distance of the sampled values: norm of their difference over their own."""
    apart: list[float] = []
    size: list[float] = []
    for rank in set(first) & set(second):
        a, b = first[rank].sample, second[rank].sample
        if len(a) != len(b):
            return math.inf
        apart += (x - y for x, y in zip(a, b, strict=True))
        size += b
    # hypot: the squares of diverged parameters may be no floats any more.
    norm, own = math.hypot(*apart), math.hypot(*size)
    return norm / own if own else (math.inf if norm else 0.0)


def _losses(first: Mapping[str, Held], second: Mapping[str, Held]) -> tuple[float, float] | None:
    for rank in sorted(set(first) & set(second), key=int):
        loss, other_loss = first[rank].loss, second[rank].loss
        if loss is not None and other_loss is not None:
            return loss, other_loss
    return None
