"""Runs that an assistant may read: only those below the folders that the user named at the start."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddprof.errors import NoUsableInput, UsageError
from ddprof.readers.admission.discover import discover

_SHOWN_CHARACTERS = 200
MOST_LISTED = 100  # the newest; an assistant that wants others is told that there are more


@dataclass(frozen=True)
class RunNames:
    """Runs, latest first, by the names that the tools take. `left_out`: number of older ones that are not listed."""

    names: tuple[str, ...]
    left_out: int


@dataclass(frozen=True)
class Allowed:
    """The folders, resolved: a link that leads out of them is refused like any other path."""

    folders: tuple[Path, ...]

    @classmethod
    def of(cls, paths: Sequence[str]) -> Allowed:
        """The allowed folders. Raises UsageError for a path that is not a folder."""
        for path in paths:
            if not os.path.isdir(path):
                raise UsageError(f"{path}: no such folder")
        return cls(tuple(Path(path).resolve() for path in paths))

    def path(self, name: str) -> str:
        """The path of a run: a name as `runs` lists it, or a path. Raises NoUsableInput where it is not allowed."""
        for folder in self.folders:
            try:
                run = (folder / name).resolve(strict=True)
            except (OSError, ValueError, RuntimeError):  # none, too long, a zero byte, a circle of links
                continue
            if run.is_relative_to(folder):
                return str(run)
        shown = ", ".join(map(str, self.folders))
        asked = name[:_SHOWN_CHARACTERS]
        raise NoUsableInput(f"{asked}: no run of that name below {shown}, which is all that may be read")

    def runs(self) -> RunNames:
        """Names of the runs below the folders."""
        written: dict[str, float] = {}
        for folder in self.folders:
            try:
                inventory = discover([folder])
            except NoUsableInput:
                continue  # nothing was recorded there yet
            for _, sources in inventory.runs:
                at = Path(os.path.commonpath([os.path.dirname(source.path) for source in sources]))
                name = str(at.relative_to(folder)) if len(self.folders) == 1 else str(at)
                newest = max(os.stat(source.path).st_mtime for source in sources)
                written[name] = max(written.get(name, 0.0), newest)
        names = sorted(written, key=lambda name: -written[name])
        return RunNames(tuple(names[:MOST_LISTED]), max(0, len(names) - MOST_LISTED))
