"""Paths -> the verdict on a job that hangs or has failed, for the command, `ddprof run`, reports, assistants."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace

from ddprof.analyzers.failure import FailureAnswer
from ddprof.errors import NoUsableInput
from ddprof.report.model import Failure
from ddprof.slices.hangs.judging.verdict import judge
from ddprof.slices.hangs.model import AFTER, NONE, Hang
from ddprof.slices.hangs.reading.collect import Gathered, collect
from ddprof.slices.hangs.text import hang_document, render_hang
from ddprof.units import format_us

INTERRUPTED = (130, 143)  # exit codes of a job that somebody ended: by Ctrl-C, by SIGTERM
_CRASHES = {128 + number: number.name for number in signal.Signals if number != signal.SIGKILL}  # by exit code


def failed_job(folder: str) -> Hang | None:
    """Reason why a run's job failed or hung; None where a user ended it. Raises NoUsableInput for no run folder."""
    gathered = collect([folder])
    hang = _judged(gathered)
    if hang.is_found:
        return hang
    code = None if gathered.end is None else gathered.end.exit_code
    if code not in (*INTERRUPTED, 0, None):
        return Hang(NONE, f"The job ended with exit code {code}; nothing that was recorded says why.")
    return None


def _judged(gathered: Gathered) -> Hang:
    """The verdict on the evidence. Its cause is `after` where all ranks ended normally but the job did not: records are
    written when the interpreter begins to end, and later failures leave none; nor does `raise SystemExit`, which Python
    forgets before.
    """
    ends, job = [e.ending for e in gathered.ranks], gathered.end
    ranks, crash = gathered.ranks, _CRASHES.get((job.exit_code if job else None) or 0, "")
    if [end.how for end in ends] == ["killed"] and not ends[0].error:  # its exit code is the job's
        ranks = (replace(ranks[0], ending=replace(ends[0], error=crash)),)
    hang = judge(ranks, gathered.hang_seen)
    sizes = {e.world_size for e in gathered.ranks}
    if hang.is_found or job is None or job.exit_code == 0 or sizes != {len(ends)}:
        return hang
    if any(end.how != "finished" or end.at_ns is None for end in ends):
        return hang
    last_ns = max(end.at_ns or 0 for end in ends)
    end_words = "no end of the job is known"
    if job.exit_code is not None and job.ended_ns is not None:
        end_words = f"the job ended {format_us((job.ended_ns - last_ns) / 1e3)} later, with exit code {job.exit_code}"
    why = "a script raised SystemExit itself, exit handlers, threads or destructors stand still or end the process"
    sentence = f"No rank ended by an exception or a call of sys.exit; {end_words}: {why}, or the launcher failed."
    return replace(hang, kind=AFTER, sentence=sentence)


def explain(paths: Sequence[str]) -> Hang:
    """The verdict. Raises NoUsableInput where no input has evidence on a rank."""
    gathered = collect(paths)
    if not gathered.ranks:
        reasons = "; ".join(note.issue for note in gathered.notes[:3])
        raise NoUsableInput(reasons or f"{', '.join(paths)}: no dump, no stack and no sidecar of any rank")
    hang = _judged(gathered)
    notes = tuple(f"{note.issue}; {note.effect}" for note in gathered.notes)
    return replace(hang, notes=(*hang.notes, *notes))


def _failure(hang: Hang) -> Failure:
    return Failure(hang_document(hang), render_hang(hang), hang.timeout_s)


FAILURE = FailureAnswer(
    lambda folder: _failure(hang) if (hang := failed_job(folder)) else None, lambda paths: _failure(explain(paths))
)
