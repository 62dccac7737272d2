"""The answer of `ddprof analyze` where only memory snapshots were given."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ddprof.cli.answer import AnalyzeOptions, SliceAnswer
from ddprof.cli.output import chosen_format
from ddprof.errors import UsageError
from ddprof.readers.admission.discover import files_of
from ddprof.readers.source import Source
from ddprof.slices.memory.format import FORMAT


def _claims(paths: Sequence[str]) -> Sequence[Source]:
    """True where all paths are snapshot files, which have no steps and get an answer of their own."""
    if not all(os.path.isfile(path) and _begins_as_pickle(path) for path in paths):
        return ()
    sources = files_of(list(paths), FORMAT.name)
    return sources if len(sources) == len(paths) else ()


def _begins_as_pickle(path: str) -> bool:
    """True for a pickle; False for unreadable files, which the other readers report."""
    try:
        with open(path, "rb") as stored:
            return stored.read(1) == b"\x80"
    except OSError:
        return False


def _deliver(sources: Sequence[Source], asked: AnalyzeOptions) -> None:
    """Answer with memory text. Raises UsageError for options that need steps."""
    if asked.fails_on or asked.wants_fixes or asked.is_strict or asked.key or asked.form == "markdown":
        raise UsageError(
            "a memory snapshot has no steps: --fail-on, --fixes, --strict, --redact and markdown need a run"
        )
    from ddprof.slices.memory.command import tell_snapshots

    tell_snapshots(sources, chosen_format(asked.form, asked.output), asked.output)


ANSWER = SliceAnswer(FORMAT.name, _deliver, _claims)
