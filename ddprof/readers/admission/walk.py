"""Files under the user's paths: folders walked, links followed as `cat` would, everything but files left out."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from ddprof.errors import NoUsableInput
from ddprof.model import HealthNote
from ddprof.readers.files.opening import UNREADABLE, one_line
from ddprof.readers.files.remote import is_url, walk_remote
from ddprof.readers.source import Source
from ddprof.untrusted.regular_files import kind_words

# Written by capture while it runs, by analysis (fixes), or by people: no traces, and not worth a note each.
_SKIPPED_SUFFIXES = (
    *(".tmp", ".ring", ".calls", ".bin", ".py", ".md", ".html", ".csv", ".yaml", ".yml", ".sh", ".toml", ".patch"),
    ".diff",
)
_TEXT_SUFFIXES = (".txt", ".log", ".out", ".err")
_LEFT_OUT = "left out"
_LOCAL = "file://"


def is_skipped(name: str) -> bool:
    """True for names that are no trace unless the user named the file."""
    return name.endswith(_SKIPPED_SUFFIXES)


def may_be_anything(name: str) -> bool:
    """True for names that need no note where the file turns out to be nothing that is read."""
    return name.endswith(_TEXT_SUFFIXES)


def walk(path: str, notes: list[HealthNote]) -> Iterator[Source]:
    """Every file under a path, in a stable order, with size and time; hidden files and links to other folders are
    skipped.

    What cannot be read, or is no regular file, becomes a note. Raises NoUsableInput where that is the path itself.
    """
    if is_url(path) and not path.startswith(_LOCAL):
        yield from _remote_files(path)
        return
    path, mode, given = _given(path.removeprefix(_LOCAL))
    if not stat.S_ISDIR(mode):
        yield given
        return

    def unreadable(error: OSError) -> None:
        issue = f"{error.filename}: this folder cannot be read: {one_line(error)}"
        notes.append(HealthNote(issue, _LEFT_OUT, where=str(error.filename)))

    for folder, folders, names in os.walk(path, onerror=unreadable):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "__")))
        # What logs of NCCL say that capture asked for is in its sidecars.
        hidden = (".", "nccl.") if "manifest.json" in names else (".",)
        for name in sorted(names):
            if not name.startswith(hidden):
                yield from _stated(os.path.join(folder, name), notes)


def _given(path: str) -> tuple[str, int, Source]:
    """A path from the user: absolute, with its mode."""
    try:
        path = os.path.abspath(os.path.expanduser(path))
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoUsableInput(f"{path}: no such file or folder") from error
    except (OSError, ValueError) as error:
        raise NoUsableInput(f"{path}: cannot be read: {one_line(error)}") from error
    if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
        raise NoUsableInput(f"{path}: {kind_words(status.st_mode)}, neither a file nor a folder")
    return path, status.st_mode, _source(path, status)


def _source(path: str, status: os.stat_result) -> Source:
    return Source(path, "", size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)


def _stated(path: str, notes: list[HealthNote]) -> Iterator[Source]:
    """A file in a folder listing, examined once: one that vanished or is not regular is skipped alone."""
    is_link = os.path.islink(path)
    if is_skipped(path) and not is_link:
        return
    try:
        status = os.stat(path)
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        why = ("a link to nothing" if is_link else "vanished") if gone else f"cannot be read: {one_line(error)}"
        notes.append(HealthNote(f"{path}: {why}", _LEFT_OUT, "info" if gone else "warning", where=path))
        return
    if not stat.S_ISREG(status.st_mode):
        issue = f"{path}: {kind_words(status.st_mode)}, not a regular file"
        notes.append(HealthNote(issue, _LEFT_OUT, "info", where=path))
    elif not is_skipped(path):
        yield _source(path, status)


def _remote_files(url: str) -> Iterator[Source]:
    try:
        for file in walk_remote(url):
            if not is_skipped(file.url):
                yield Source(file.url, "", size_bytes=file.size_bytes, stamp=file.stamp)
    except FileNotFoundError as error:
        raise NoUsableInput(f"{url}: no such file, folder or bucket") from error
    except UNREADABLE as error:
        raise NoUsableInput(f"{url}: cannot be read: {one_line(error)}") from error
