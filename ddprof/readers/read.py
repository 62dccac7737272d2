"""One source to one RankTrace."""

from __future__ import annotations

from ddprof.errors import NoUsableInput
from ddprof.model import RankTrace
from ddprof.readers.formats import FORMATS
from ddprof.readers.source import Source


def read(source: Source) -> RankTrace:
    """Read one source. Raises NoUsableInput, in one line, where nothing in it can be used."""
    if source.format not in FORMATS:
        raise NoUsableInput(f"{source.label}: format '{source.format}' has no reader")
    return FORMATS[source.format].read(source)
