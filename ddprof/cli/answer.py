"""Answers of `ddprof analyze` to input that is no run: slices give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddprof.cli.lasting import import_lasting
from ddprof.errors import NoUsableInput
from ddprof.readers.source import Source
from ddprof.slice import all_slices


@dataclass(frozen=True)
class AnalyzeOptions:
    """The options of `ddprof analyze`. `form`: None where none was named; `key`: of redaction, None without."""

    form: str | None
    output: Path | None
    key: bytes | None
    fails_on: bool
    is_strict: bool
    wants_fixes: bool


def _none(paths: Sequence[str]) -> Sequence[Source]:
    return ()


@dataclass(frozen=True)
class SliceAnswer:
    """Record of what is said of files of one format. `claims`: the sources of paths that are files of it and nothing
    else."""

    format: str
    deliver: Callable[[Sequence[Source], AnalyzeOptions], None]
    claims: Callable[[Sequence[str]], Sequence[Source]] = _none


def was_answered(paths: Sequence[str], asked: AnalyzeOptions) -> bool:
    """True where a slice claims all paths, and has answered."""
    for answer in _answers():
        if sources := answer.claims(paths):
            answer.deliver(sources, asked)
            return True
    return False


def answer_without_events(sources: Sequence[Source], asked: AnalyzeOptions) -> None:
    """The answer to sources of a format that holds no events. Raises NoUsableInput where no slice reads it."""
    form = sources[0].format
    answer = next((answer for answer in _answers() if answer.format == form), None)
    if answer is None:
        raise NoUsableInput(f"{sources[0].label}: {form}, which holds no events, and no slice reads it")
    answer.deliver(sources, asked)


def _answers() -> list[SliceAnswer]:
    return [import_lasting(module).ANSWER for part in all_slices() for module in part.answers]
