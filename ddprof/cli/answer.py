"""Contributions of slices to commands: answers of `ddprof analyze` on input that is not a run, such as a text log, and
destinations of reports beside files, selected with `--to` and `--log-to`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddprof.cli.lazy_group import import_lasting
from ddprof.errors import NoUsableInput
from ddprof.slice import all_slices

if TYPE_CHECKING:  # the launcher of a job asks too, and stays small
    from ddprof.readers.source import Source
    from ddprof.report.model import Report


@dataclass(frozen=True)
class AnalyzeOptions:
    """The options of `ddprof analyze`. `form`: None where none was named; `key`: redaction key, None without."""

    form: str | None
    output: Path | None
    key: bytes | None
    fails_on: bool
    is_strict: bool
    wants_fixes: bool


@dataclass(frozen=True)
class SliceAnswer:
    """A slice's handler for one format."""

    format: str
    deliver: Callable[[Sequence[Source], AnalyzeOptions], None]


def answer_without_events(sources: Sequence[Source], asked: AnalyzeOptions) -> None:
    """Answer for sources of formats without events. Raises NoUsableInput where no slice reads a format."""
    answers = {answer.format: answer for part in all_slices() for answer in map(_answer, part.answers)}
    for form in dict.fromkeys(source.format for source in sources):
        if form not in answers:
            raise NoUsableInput(f"{sources[0].label}: {form}, which holds no events, and no slice reads it")
        answers[form].deliver([source for source in sources if source.format == form], asked)


def _answer(module: str) -> SliceAnswer:
    answer: SliceAnswer = import_lasting(module).ANSWER
    return answer


# Sends a report, the file that was written of it, and the path that it was read from (None: that stays here). Raises
# DdprofError where it was not taken.
Send = Callable[["Report", Path, str | None], None]


@dataclass(frozen=True)
class Destination:
    """Destination of reports. `sender(option, names)` returns the function that sends to `names` and raises UsageError
    for an unknown one; `follower` is the module that runs beside a job, with its folder and the names, until stdin
    closes.
    """

    sender: Callable[[str, Sequence[str]], Send]
    follower: str


def destination() -> Destination:
    """The destination of the first slice that has one."""
    first: Destination = next(
        import_lasting(module).DESTINATION for part in all_slices() for module in part.destinations
    )
    return first
