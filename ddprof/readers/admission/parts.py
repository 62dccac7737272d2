"""Files that hold several workers.

One source per worker; of several files about the same run, the one that says most.
"""

from __future__ import annotations

from dataclasses import replace

from ddprof.errors import NoUsableInput
from ddprof.model import HealthNote
from ddprof.readers.formats import formats
from ddprof.readers.source import Source


def split_parts(sources: list[Source]) -> tuple[list[Source], list[HealthNote]]:
    """One source per worker, and notes on files left out because they cannot be read or another one says more."""
    kept, notes = _chosen(sources)
    result: list[Source] = []
    for source in kept:
        names = formats()[source.format].parts
        parts: list[str] | list[None] = [None]
        try:
            parts = names(source) if names else parts
        except NoUsableInput as error:
            notes.append(HealthNote(str(error), "left out", "error", where=source.path))
            continue
        result += [replace(source, part=part) for part in parts]
    return result, notes


def _chosen(sources: list[Source]) -> tuple[list[Source], list[HealthNote]]:
    notes: list[HealthNote] = []
    for name, choosy in formats().items():
        mine = [s for s in sources if s.format == name]
        if choosy.chosen and mine:
            kept, left_out = choosy.chosen(mine)
            sources = [s for s in sources if s.format != name] + kept
            notes += left_out
    return sources, notes
