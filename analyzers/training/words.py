"""Lists and lines in the sentences of remarks."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.findings import Evidence
from ddprof.sidecar.training import CodeLine

_SHOWN = 3  # names in one sentence


def named(names: Sequence[str]) -> str:
    """The first few names, and the number of the rest."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def at_line(what: str, line: CodeLine | None) -> tuple[Evidence, ...]:
    """The line of the script as evidence; nothing where it is not known."""
    return () if line is None else (Evidence(f"{what} at {line.words}"),)
