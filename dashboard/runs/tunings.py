"""The tunings (folders of `ddprof tune`) that a run belongs to: as one of its trials, or by the same command."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ddprof.errors import NoUsableInput
from ddprof.readers.side_files.manifests import Manifest
from ddprof.trials.document import FILE, NAME_PART, TRIALS, TuneDocument, read_document

MOST = 8  # of one run, the newest
_MOST_BESIDE = 64  # folders that are looked into for a command
_KEPT = 32  # documents that are kept as they were read last


@dataclass(frozen=True)
class Tuning:
    """A folder of `ddprof tune` with its content."""

    folder: str
    document: TuneDocument

    @property
    def name(self) -> str:
        """Name of the folder."""
        return os.path.basename(self.folder)


def tunings_of(run_folder: str, launch: Manifest | None) -> list[Tuning]:
    """The tunings of a run: the one that it is a trial of first, then the latest. Unreadable folders are skipped."""
    trials = Path(run_folder).parent.parent  # a trial's run is TUNING/trials/NUMBER/run
    own_folder = trials.parent if trials.name == TRIALS and (trials.parent / FILE).is_file() else None
    tunings = [tuning for tuning in [_read(own_folder)] if tuning is not None] if own_folder is not None else []
    for folder in _beside(own_folder or Path(run_folder)):
        if len(tunings) == MOST:
            break
        tuning = _read(folder)
        if tuning is None or launch is None:
            continue
        of = shlex.join(tuning.document.options.command), tuning.document.cwd
        if of == (launch.command, launch.cwd):
            tunings.append(tuning)
    return tunings


def _beside(folder: Path) -> Iterator[Path]:
    """Folders of tunings beside one, last names first, as names begin with the date. Recognised by name: a run may lie
    beside thousands of others on a slow file system.
    """
    try:
        names = sorted(os.listdir(folder.parent), reverse=True)
    except OSError:
        return
    tuned = (folder.parent / name for name in names if NAME_PART in name and name != folder.name)
    for number, path in enumerate(path for path in tuned if (path / FILE).is_file()):
        if number == _MOST_BESIDE:
            return
        yield path


def _read(folder: Path) -> Tuning | None:
    try:
        stat = (folder / FILE).stat()
    except OSError:
        return None
    return _document(folder, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=_KEPT)
def _document(folder: Path, changed_ns: int, size: int) -> Tuning | None:
    """The tuning in a file of this time and size, cached, as it is rewritten after each trial; None if unreadable."""
    try:
        return Tuning(str(folder), read_document(folder))
    except NoUsableInput:
        return None
