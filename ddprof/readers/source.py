"""Input of readers: one file (or a part of one) with its companions, and the inventory of all input by run."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from ddprof.errors import NoUsableInput
from ddprof.model import HealthNote
from ddprof.untrusted.plain_text import encodable


@dataclass(frozen=True)
class Source:
    """One rank's trace on disk. Frozen and picklable, for pools of processes.

    `path` is a local path or any fsspec URL; `member` names a file inside an archive; `part` a worker inside a file
    that holds several (a Horovod or Megatron timeline, a two-GPU Nsight capture). `stamp`: a store's token that changes
    with the file's content.
    """

    path: str
    format: str
    part: str | None = None
    member: str | None = None
    sidecar_path: str | None = None
    flight_recorder_path: str | None = None
    manifest_paths: tuple[str, ...] = ()
    size_bytes: int = 0
    mtime_ns: int = 0
    stamp: str = ""
    # Files that were given, which share what may be unpacked; no part of a cached file's key, which is the text of this
    among: int = field(default=1, repr=False)

    @property
    def state(self) -> tuple[int, str]:
        """Identity of the file's content: changes when another file takes its path."""
        return self.mtime_ns, self.stamp

    @property
    def label(self) -> str:
        """Name for messages and reports: path, archive member and part, as printable text."""
        inside = f"!{self.member}" if self.member else ""
        return encodable(f"{self.path}{inside}" + (f" [{self.part}]" if self.part else ""))


@dataclass(frozen=True)
class Inventory:
    """Result of discovery: sources, notes on defects and ignored files, and runs (a label and its sources)."""

    sources: tuple[Source, ...]
    health: tuple[HealthNote, ...] = ()
    runs: tuple[tuple[str, tuple[Source, ...]], ...] = field(default=())


class OnlyLogs(NoUsableInput):
    """The input has no trace but files without events, such as logs of training jobs: `sources`."""

    def __init__(self, message: str, sources: tuple[Source, ...] = ()) -> None:
        super().__init__(message)
        self.sources = sources


def notes_by_run(inventory: Inventory) -> list[tuple[HealthNote, ...]]:
    """The notes of each run, in the order of `inventory.runs`.

    A note about a file goes to the runs whose folder has most of its path in common with that of the file: a file
    beside traces to their run, one above several runs to all of these. A note about no file goes to every run.
    """
    notes: list[list[HealthNote]] = [[] for _ in inventory.runs]
    below: dict[str, list[list[HealthNote]]] = defaultdict(list)  # a folder -> the notes of each run in it
    for of_run, (_, sources) in zip(notes, inventory.runs, strict=True):
        folder = _common([source.path for source in sources])
        for depth in range(1, len(folder) + 1):
            below["/".join(folder[:depth])].append(of_run)
    for note in inventory.health:
        folder = _parts(note.where)[:-1] if note.where else []
        above = ("/".join(folder[:depth]) for depth in range(len(folder), 0, -1))
        for of_run in next((below[path] for path in above if path in below), notes):
            of_run.append(note)
    return [tuple(of_run) for of_run in notes]


def _common(paths: Sequence[str]) -> list[str]:
    """The deepest folder that holds all these files, as path parts."""
    folders = [_parts(path)[:-1] for path in dict.fromkeys(paths)]
    first, last = min(folders), max(folders)
    return first[: common_length(first, last)]


def common_length(a: Sequence[str], b: Sequence[str]) -> int:
    """Number of leading parts that two paths share, or of characters that two names do."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def _parts(path: str) -> list[str]:
    return path.replace(os.sep, "/").split("/")
