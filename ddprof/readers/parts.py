"""Files that hold several workers: one source per worker."""

from __future__ import annotations

from ddprof.readers.source import Source


def parts_of(source: Source) -> list[Source]:
    """The source itself, or one per worker where its format holds several in a file."""
    return [source]
