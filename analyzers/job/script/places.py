"""Files of the script by the names that every finding shows."""

from __future__ import annotations

from collections.abc import Iterable

from ddprof.analyzers.facts.model import RankFacts
from ddprof.derived_once import remembered


def shown_place(facts: RankFacts, source_line: str) -> str:
    """A line of the script ("file:number") by the name of its file (`shown_file`)."""
    file, colon, number = source_line.rpartition(":")
    return f"{shown_file(facts, file)}:{number}" if colon else source_line


def shown_file(facts: RankFacts, file: str) -> str:
    """The name of a file as stacks have it, without its prefix of sys.path; where no stack lies in it, its last part.
    Longer where that would name another file of the rank's records, too.
    """
    plain = _parts(file)
    least = max((len(short) for short in _framed(facts) if plain[-len(short) :] == short), default=1)
    others = {other for other in _recorded(facts) if other != plain}
    ends = (plain[-length:] for length in range(least, len(plain)))
    return "/".join(next((end for end in ends if not any(other[-len(end) :] == end for other in others)), plain))


def _parts(file: str) -> tuple[str, ...]:
    return tuple(file.replace("\\", "/").split("/"))


@remembered
def _framed(facts: RankFacts) -> set[tuple[str, ...]]:
    frames = facts.script_frames
    return _all_parts(frames["file"][frames["is_user"].astype(bool)].tolist())


@remembered
def _recorded(facts: RankFacts) -> set[tuple[str, ...]]:
    sidecar = facts.sidecar
    waits = [wait.source_line.rpartition(":")[0] for wait in sidecar.syncs]
    calls = [*(call.file for call in sidecar.window_calls), *(call.file for call in sidecar.last_calls)]
    return _all_parts([*waits, *calls])


def _all_parts(files: Iterable[str]) -> set[tuple[str, ...]]:
    return {_parts(file) for file in files if file}
