"""Paths -> the verdict on a job that hangs or has failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ddprof.errors import NoUsableInput
from ddprof.slices.hangs.judging.verdict import judge
from ddprof.slices.hangs.model import NONE, Hang
from ddprof.slices.hangs.reading.collect import collect

INTERRUPTED = (130, 143)  # exit codes of a job that somebody ended: by Ctrl-C, by SIGTERM


def failed_job(folder: str) -> Hang | None:
    """Why the job of a run folder, which its manifest says failed or hung, did; None where somebody just ended it.

    Raises NoUsableInput where the folder is none.
    """
    gathered = collect([folder])
    hang = judge(gathered.ranks, gathered.hang_seen)
    if hang.is_found:
        return hang
    if gathered.exit_code not in (*INTERRUPTED, 0, None):
        return Hang(NONE, f"The job ended with exit code {gathered.exit_code}; nothing that was recorded says why.")
    return None


def explain(paths: Sequence[str]) -> Hang:
    """The verdict. Raises NoUsableInput where nothing that was given says anything of a rank."""
    gathered = collect(paths)
    if not gathered.ranks:
        reasons = "; ".join(note.issue for note in gathered.notes[:3])
        raise NoUsableInput(reasons or f"{', '.join(paths)}: no dump, no stack and no sidecar of any rank")
    hang = judge(gathered.ranks, gathered.hang_seen)
    notes = tuple(f"{note.issue}; {note.effect}" for note in gathered.notes if note.severity != "info")
    return replace(hang, notes=(*hang.notes, *notes))
