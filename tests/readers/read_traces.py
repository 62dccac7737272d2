"""Traces of a folder, read, and what is in their columns."""

from __future__ import annotations

from pathlib import Path

from ddprof.model import Kind, RankTrace
from ddprof.readers import discover, read

FORMATS = "traces/formats"


def traces(path: Path) -> list[RankTrace]:
    """Every rank under a path."""
    return [read(source) for source in discover([path]).sources]


def names(trace: RankTrace, kind: Kind) -> list[str]:
    """Names of all events of a kind, in order."""
    return [trace.strings[n] for n in trace.events["name"][trace.events["kind"] == kind].tolist()]
