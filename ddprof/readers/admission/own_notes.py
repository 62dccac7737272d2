"""Which run a note about what was given belongs to: notes of one folder never stand under the run of another."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import takewhile

from ddprof.model import HealthNote
from ddprof.readers.source import Inventory


def notes_by_run(inventory: Inventory) -> list[tuple[HealthNote, ...]]:
    """The notes of each run, in the order of `inventory.runs`.

    A note about a file goes to the runs whose folder has most of its path in common with that of the file: a file
    beside traces to their run, one above several runs to all of these. A note about no file goes to every run.
    """
    folders = [_common([source.path for source in sources]) for _, sources in inventory.runs]
    notes: list[list[HealthNote]] = [[] for _ in folders]
    for note in inventory.health:
        near = [_shared(folder, _parts(note.where)[:-1]) if note.where else 0 for folder in folders]
        for own, length in zip(notes, near, strict=True):
            if length == max(near):
                own.append(note)
    return [tuple(own) for own in notes]


def _common(paths: Sequence[str]) -> list[str]:
    """The folder that holds all these files, as its parts."""
    folders = [_parts(path)[:-1] for path in dict.fromkeys(paths)]
    first, last = min(folders), max(folders)
    return first[: _shared(first, last)]


def _shared(a: Sequence[str], b: Sequence[str]) -> int:
    """How many parts two paths begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def _parts(path: str) -> list[str]:
    return path.replace(os.sep, "/").split("/")
