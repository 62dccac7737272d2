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
    """A slice's handler for one format. `claims` returns the sources where all paths are files of that format."""

    format: str
    deliver: Callable[[Sequence[Source], AnalyzeOptions], None]
    claims: Callable[[Sequence[str]], Sequence[Source]] = lambda paths: ()


def was_answered(paths: Sequence[str], asked: AnalyzeOptions) -> bool:
    """Let the slice that claims all paths answer; False where none does."""
    for answer in _answers():
        if sources := answer.claims(paths):
            answer.deliver(sources, asked)
            return True
    return False


def answer_without_events(sources: Sequence[Source], asked: AnalyzeOptions) -> None:
    """Answer for sources of a format without events. Raises NoUsableInput where no slice reads the format."""
    form = sources[0].format
    answer = next((answer for answer in _answers() if answer.format == form), None)
    if answer is None:
        raise NoUsableInput(f"{sources[0].label}: {form}, which holds no events, and no slice reads it")
    answer.deliver(sources, asked)


def _answers() -> list[SliceAnswer]:
    return [import_lasting(module).ANSWER for part in all_slices() for module in part.answers]


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
