"""The answer of `ddprof analyze` where only memory snapshots were given."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.cli.answer import AnalyzeOptions, SliceAnswer
from ddprof.cli.output import chosen_format
from ddprof.errors import UsageError
from ddprof.readers.source import Source
from ddprof.slices.memory.format import FORMAT


def _deliver(sources: Sequence[Source], asked: AnalyzeOptions) -> None:
    """Answer with memory text. Raises UsageError for options that need steps."""
    if asked.fails_on or asked.wants_fixes or asked.is_strict or asked.key or asked.form == "markdown":
        raise UsageError(
            "a memory snapshot has no steps: --fail-on, --fixes, --strict, --redact and markdown need a run"
        )
    from ddprof.slices.memory.command import tell_snapshots

    tell_snapshots(sources, chosen_format(asked.form, asked.output), asked.output)


ANSWER = SliceAnswer(FORMAT.name, _deliver)
