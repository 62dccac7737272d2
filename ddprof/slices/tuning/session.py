"""One `ddprof tune` from its first run to its answer, in one folder."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from ddprof.analyzers.engine import LoadedRun, Options, load_runs
from ddprof.errors import NoUsableInput
from ddprof.report import calibration
from ddprof.slices.tuning import handover, search
from ddprof.slices.tuning.candidates import candidates
from ddprof.slices.tuning.handover import Handover
from ddprof.slices.tuning.journal import TrialJournal
from ddprof.slices.tuning.result import result
from ddprof.trials.answer import TuningAnswer
from ddprof.trials.document import write_document


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
    state.plan = search.with_warm_up(state.plan, proposed.candidates)
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
