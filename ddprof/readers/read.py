"""One source to one RankTrace."""

from __future__ import annotations

from ddprof.errors import NoUsableInput
from ddprof.model import RankTrace
from ddprof.readers.formats import formats
from ddprof.readers.source import Source


def read(source: Source) -> RankTrace:
    """Read one source. Raises NoUsableInput, in one line, where nothing in it can be used."""
    if source.format not in formats():
        raise NoUsableInput(f"{source.label}: format '{source.format}' has no reader")
    return formats()[source.format].read(source)
