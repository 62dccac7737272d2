"""The served runs, reloaded when their folder changes: a job may still be writing it."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.errors import DdprofError, NoUsableInput
from ddprof.report.phrases import clean

# Guard of the server: an input that arrives while it runs is shown, or refused in one line.
#
# Folders are read again beside a job that writes them, and strangers' files are uploaded: whatever goes wrong there
# must neither end the server nor hide the runs that it shows.

Result = TypeVar("Result")


class Vanished(NoUsableInput):
    """A file disappeared, or became unreadable, during a read: worth another try."""


def attempt(read: Callable[[], Result]) -> Result:
    """The result of `read`. Raises DdprofError, in one clean line, for any error; Vanished for a file's."""
    try:
        return read()
    except DdprofError as error:
        raise NoUsableInput(clean(str(error))) from error
    except OSError as error:
        named = f"{error.filename}: {error.strerror}" if error.filename is not None else str(error)
        raise Vanished(clean(named or type(error).__name__)) from error
    except Exception as error:
        if os.environ.get("DDPROF_DEBUG"):
            traceback.print_exc()
        words = f"a defect of ddprof: {type(error).__name__} (DDPROF_DEBUG=1 shows where; please report it)"
        raise NoUsableInput(f"the input could not be analyzed: {words}") from error


LEAST_PAUSE_S = 4.0  # between two looks at the folder
WATCHED_SUFFIXES = (".json", ".gz", ".jsonl", ".sqlite", ".parquet", ".rpd")
MAX_WATCHED = 20_000  # files below the served folders


class Runs:
    """Opened runs of the given paths.

    `version` grows whenever the pages change; `problem`: why the last reading failed, if it did.
    """

    def __init__(self, paths: Sequence[str], open_runs: Sequence[OpenRun], workers: int | None = None) -> None:
        self.paths, self.open_runs, self.workers = tuple(paths), tuple(open_runs), workers
        self.version, self.problem = 1, ""
        self._added: tuple[OpenRun, ...] = ()
        self._stamp = folder_stamp(self.paths)
        self._looked = time.monotonic()
        self._lock = threading.Lock()

    def refresh(self) -> int:
        """Read again what has changed since the last look, the rest from the cache; returns the version."""
        if not self._lock.acquire(blocking=False):
            return self.version
        try:
            if time.monotonic() - self._looked >= LEAST_PAUSE_S:
                self._look()
        finally:
            self._lock.release()
        return self.version

    def add(self, open_runs: Sequence[OpenRun]) -> int:
        """Serve further runs that are complete; returns the number of the first."""
        with self._lock:
            first = len(self.open_runs)
            self._added += tuple(open_runs)
            self.open_runs += tuple(open_runs)
            self.version += 1
        return first

    def _look(self) -> None:
        self._looked = time.monotonic()
        stamp = folder_stamp(self.paths)
        if stamp == self._stamp:
            return
        before = self.problem
        try:
            self.open_runs = (*attempt(lambda: load(self.paths, self.workers)), *self._added)
            self._stamp, self.problem = stamp, ""
        except DdprofError as error:
            # A file may be half written: what was shown stays, and the page says that it is old. Where one went
            # while it was read, the next look reads again even if nothing changes any more.
            self._stamp = () if isinstance(error, Vanished) else stamp
            self.problem = str(error)
        if not self.problem or self.problem != before:
            self.version += 1


def folder_stamp(paths: Sequence[str]) -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of every trace-like file: equal stamps mean nothing to read again."""
    stamps: list[tuple[str, int, int]] = []
    for path in paths:
        if "://" in path:
            continue
        files = [path] if os.path.isfile(path) else _walk(path)
        for file in files[:MAX_WATCHED]:
            try:
                stat = os.stat(file)
            except OSError:
                continue  # renamed between the listing and now: the next look sees its new name
            stamps.append((file, stat.st_size, stat.st_mtime_ns))
    return tuple(sorted(stamps))


def _walk(path: str) -> list[str]:
    files = []
    for folder, folders, names in os.walk(path):
        folders[:] = [f for f in folders if not f.startswith(".")]
        files += [os.path.join(folder, n) for n in names if n.endswith(WATCHED_SUFFIXES) and not n.startswith(".")]
    return sorted(files)
