"""Samples of other formats among the real traces."""

from __future__ import annotations

from pathlib import Path

from ddprof.model import Kind, RankTrace
from ddprof.readers import discover, read

FORMATS = "traces/formats"


def traces(path: Path) -> list[RankTrace]:
    return [read(source) for source in discover([path]).sources]


def names(trace: RankTrace, kind: Kind) -> list[str]:
    return [trace.strings[n] for n in trace.events["name"][trace.events["kind"] == kind].tolist()]
