"""One `ddprof tune` from its first run to its answer, in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from msgspec.structs import replace

from ddprof.analyzers.engine import LoadedRun, Options, load_runs
from ddprof.errors import NoUsableInput
from ddprof.report import calibration
from ddprof.slices.tuning import handover, search
from ddprof.slices.tuning.candidates import candidates
from ddprof.slices.tuning.handover import Handover
from ddprof.slices.tuning.journal import TrialJournal, with_warm_up
from ddprof.slices.tuning.race import Entry
from ddprof.slices.tuning.search import Search
from ddprof.trials.document import (
    DIAGNOSIS,
    KEPT,
    UNDECIDED,
    Memory,
    Trial,
    Tried,
    TuningAnswer,
    Untried,
    write_document,
)
from ddprof.trials.paired import LEAST_GAIN, OPEN, WON, outcome, smallest_seen


def prepare(journal: TrialJournal) -> None:
    """Make the diagnosis and its candidates, with which the state has a plan. Raises NoUsableInput."""
    state = journal.state
    folder = search.diagnose(journal)
    if state.candidates is not None:
        return
    run = _loaded(folder)
    proposed = candidates(run, state.options.only, state.options.allow_numerics)
    assert state.plan is not None
    state.candidates, state.left_out, state.is_doubtful = proposed.candidates, proposed.left_out, proposed.is_doubtful
    state.plan = with_warm_up(state.plan, proposed.candidates)
    state.headline, state.compute_us = run.report.verdict.headline, run.report.ledger.job.get("compute", 0.0)
    journal.save()


def conclude(journal: TrialJournal, record: bool = True) -> tuple[TuningAnswer, Handover]:
    """Search, and write the answer to the folder. `record`: add to the calibration files. Raises DdprofError."""
    state = journal.state
    answer = result(journal, search.search(journal, state.candidates or ()))
    left = handover.hand_over(answer, state, journal.folder)
    if record:
        handover.keep(handover.records(answer, state, journal.folder, state.compute_us), journal.folder)
    records = calibration.on_this_machine([journal.folder])
    ids = dict.fromkeys(tried.finding for tried in answer.tried if tried.finding)
    fared = {name: calibration.like(records, (name,), ()) for name in ids}
    known_like = {name: one for name, one in fared.items() if one.total}
    answer = replace(answer, calibration=known_like, patch=left.diff, by_hand=left.by_hand)
    write_document(state, journal.folder, answer)
    return answer, left


def _loaded(folder: Path) -> LoadedRun:
    runs = list(load_runs([folder], Options()))
    if len(runs) != 1:
        raise NoUsableInput(f"{folder}: the diagnosis holds {len(runs)} runs, wanted one")
    return runs[0]


def result(journal: TrialJournal, searched: Search) -> TuningAnswer:
    """Result of a finished search."""
    chosen = searched.chosen.settings if searched.chosen is not None else ()
    baselines = [made for made in journal.made if not made.settings and made.label != DIAGNOSIS]
    steps_us = [made.step_us for made in baselines if made.step_us is not None]
    step_us = median(steps_us) if steps_us else None
    gain = searched.chosen.gain if searched.chosen is not None else None
    entries = [*searched.tried, *searched.added, *([searched.together] if searched.together is not None else [])]
    left_out = [Untried(words, why) for words, why in journal.state.left_out]
    return TuningAnswer(
        verdict=searched.verdict,
        chosen=chosen,
        measured=gain,
        step_us=step_us,
        after_us=None if gain is None or step_us is None else step_us * (1 - gain.share),
        least_share=LEAST_GAIN,
        smallest_share=_smallest(entries),
        baseline_memory=_memory(baselines),
        tried=tuple(_tried(entry, searched) for entry in entries),
        untried=(*(Untried(candidate.name, why) for candidate, why in searched.untried), *left_out),
        runs=len(journal.made),
        run_s=round(journal.usual_s, 1),
        spent_s=round(sum(made.took_s for made in journal.made), 1),
    )


def _tried(entry: Entry, searched: Search) -> Tried:
    is_set = entry is searched.together
    base = () if is_set or entry in searched.tried else entry.settings[:-1]
    shown = entry.settings if is_set else entry.settings[-1:]
    return Tried(
        settings=tuple(candidate.name for candidate in shown),
        beside=tuple(candidate.name for candidate in base),
        finding="" if is_set else entry.candidate.finding,
        state=_state(entry, searched),
        why=entry.why or _why(entry, searched),
        predicted=None if is_set or base else entry.candidate.predicted,
        measured=entry.gain,
        results=entry.sameness,
        memory=_memory(entry.trials),
    )


def _state(entry: Entry, searched: Search) -> str:
    together = searched.together
    is_in_set = together is not None and entry.state == WON and entry.candidate in together.settings
    if entry is searched.chosen or (searched.chosen is together and is_in_set):
        return KEPT
    return UNDECIDED if entry.state == OPEN else entry.state


def _why(entry: Entry, searched: Search) -> str:
    if entry.state == OPEN:
        return "the budget is spent"
    if entry.state == WON and _state(entry, searched) == WON:
        return "another value of it is better" if entry in searched.tried else "not in the set"
    return ""


def _memory(trials: Sequence[Trial]) -> Memory | None:
    memories = [
        Memory(trial.peak_bytes, trial.device_bytes)
        for trial in trials
        if trial.peak_bytes is not None and trial.device_bytes is not None
    ]
    return min(memories, key=lambda row: row.device_bytes - row.peak_bytes) if memories else None


def _smallest(entries: Sequence[Entry]) -> float | None:
    """Smallest detectable gain of the least sensitive comparison without a winner."""
    smallest = [
        smallest_seen(entry.pairs, entry.error) for entry in entries if outcome(entry.pairs, entry.error) != WON
    ]
    return max((share for share in smallest if share is not None), default=None)
