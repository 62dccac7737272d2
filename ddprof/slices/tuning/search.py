"""The search: diagnosis, a race of its candidates, winners combined, the chosen set against the command itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ddprof.errors import NoUsableInput
from ddprof.report.comparison.compare import LEAST_SHARE
from ddprof.slices.tuning.journal import WARM_UP, TrialJournal, shortened
from ddprof.slices.tuning.race import Entry, Race, runs_of
from ddprof.slices.tuning.runs.trial import LOG, RUN, TOO_FEW_STEPS, Window
from ddprof.trials.document import DIAGNOSIS, KEEP, NOTHING, TRIALS, UNDECIDED, RunPlan, TrialCandidate
from ddprof.trials.paired import ERROR, LOOKS, LOST, OPEN, WON

_WINDOW_STEPS = 10  # of the diagnosis
_SKIP = 5  # steps before its window


@dataclass
class Search:
    """State of a search. `chosen`: the entry of settings to keep, on top of the given command; None without any."""

    tried: list[Entry] = field(default_factory=list)
    added: list[Entry] = field(default_factory=list)  # on top of the best one
    together: Entry | None = None  # the chosen set, where it is more than one candidate
    chosen: Entry | None = None
    untried: list[tuple[TrialCandidate, str]] = field(default_factory=list)
    is_doubtful: bool = False  # the diagnosis withdrew findings, of which candidates might have come

    @property
    def verdict(self) -> str:
        """KEEP, NOTHING, or UNDECIDED where more time might have found something."""
        if self.chosen is not None:
            return KEEP
        return UNDECIDED if self.is_doubtful or any(entry.state == OPEN for entry in self.tried) else NOTHING


def diagnose(journal: TrialJournal) -> Path:
    """Make the first run, traced; return its run folder. Raises NoUsableInput where it gives no findings."""
    steps = journal.state.options.steps
    plan = RunPlan(WARM_UP, steps)
    window = Window(min(_SKIP, WARM_UP), min(_WINDOW_STEPS, steps))
    made = journal.baseline(DIAGNOSIS, window, plan)
    folder = journal.folder / TRIALS / made.folder
    if made.failed not in ("", TOO_FEW_STEPS) or not made.steps:
        reason = made.failed if made.steps else "no training step was seen"
        raise NoUsableInput(f"the command itself cannot be tuned: {reason} (its output: {folder / LOG})")
    if made.steps < plan.last:
        plan = shortened(made)
    if journal.state.plan is None:
        journal.state.plan = plan
    return folder / RUN


def search(journal: TrialJournal, candidates: Sequence[TrialCandidate]) -> Search:
    """Run everything after the diagnosis, within the budget."""
    searched = Search(is_doubtful=journal.state.is_doubtful)
    allow = journal.state.options.allow_numerics
    groups = {candidate.group for candidate in candidates}
    reserve = 2 * LOOKS[0] if len(groups) > 1 else 0
    races: list[Race] = []
    left = list(candidates)
    while left and (not races or journal.affords(LOOKS[0] * runs_of(1) + reserve)):
        chosen, left = affordable(journal, left, reserve)
        race = Race(journal, (), [Entry((candidate,), ERROR / len(candidates)) for candidate in chosen], allow)
        race.run(reserve)
        if race.base_failed:
            raise NoUsableInput(f"the command as it is failed when it was run again: {race.base_failed}")
        races.append(race)
        searched.tried += race.entries
    searched.untried = [(candidate, "the budget is too small for it") for candidate in left]
    winners = best_of_groups(searched.tried)
    if not winners:
        return searched
    first = winners[0]
    settings = first.settings
    for entry in _further(first, winners, searched.tried):
        addition = Entry((*settings, entry.candidate))
        Race(journal, settings, [addition], allow).run(reserve)
        searched.added.append(addition)
        if addition.state == WON:
            settings = addition.settings
    searched.chosen = first
    if len(settings) > 1:
        searched.together = together = Entry(settings)
        whole = Race(journal, (), [together], allow)
        whole.run()
        if together.state == WON:
            whole.refine(together)
        if _is_borne_out(together):
            searched.chosen = together
            return searched
    next(race for race in races if first in race.entries).refine(first)
    if not _is_borne_out(first):
        searched.chosen = None
    return searched


def _is_borne_out(winner: Entry) -> bool:
    """True where a winner remains certain over all of its pairs, including those that refined its gain."""
    if winner.state != WON:
        return False
    if winner.gain is not None and winner.gain.low is not None and winner.gain.low > 0:
        return True
    winner.state, winner.why = OPEN, "it won, and its later pairs of runs do not bear that out"
    return False


def affordable(
    journal: TrialJournal, candidates: Sequence[TrialCandidate], reserve: int
) -> tuple[list[TrialCandidate], list[TrialCandidate]]:
    """Candidates that the budget carries to the test's first look, at least one, and the rest; findings' own first."""
    ranked = sorted(candidates, key=lambda candidate: (candidate.is_variant, -candidate.predicted.share))
    runs = int(journal.left_s / journal.usual_s) if journal.usual_s else len(ranked) * 99
    count = len(ranked)
    while count > 1 and LOOKS[0] * runs_of(count) > runs - reserve:
        count -= 1
    return ranked[:count], ranked[count:]


def best_of_groups(entries: Sequence[Entry]) -> list[Entry]:
    """The winner of each group, the largest gain first; of practically equal ones the smaller value (less memory)."""
    best: dict[str, Entry] = {}
    for entry in (entry for entry in entries if entry.state == WON):
        group = entry.candidate.group
        if group not in best or _is_preferred(entry, best[group]):
            best[group] = entry
    return sorted(best.values(), key=lambda entry: -_share(entry))


def _is_preferred(entry: Entry, other: Entry) -> bool:
    apart = _share(entry) - _share(other)
    if abs(apart) > LEAST_SHARE:
        return apart > 0
    return _size(entry.candidate) < _size(other.candidate)


def _size(candidate: TrialCandidate) -> float:
    return sum(float(value) for value in candidate.values.values() if isinstance(value, (int, float)))


def _share(entry: Entry) -> float:
    gain = entry.gain
    return gain.share if gain is not None else 0.0


def _further(first: Entry, winners: Sequence[Entry], tried: Sequence[Entry]) -> list[Entry]:
    """Entries that may gain on top of the best, by predicted gain: winners, then losers with a hidden bottleneck."""

    def predicted(entry: Entry) -> float:
        return -entry.candidate.predicted.share

    others = sorted((entry for entry in winners if entry is not first), key=predicted)
    groups = {entry.candidate.group for entry in winners}
    hidden = [e for e in tried if e.state == LOST and e.candidate.group not in groups and not e.candidate.is_variant]
    return [*others, *sorted(hidden, key=predicted)]
