"""Untrusted files: opened only where they are regular, and read only up to a limit."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack
from typing import IO

_OTHER_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """A regular file for reading. Raises OSError for anything else; never waits for the writer of a pipe."""
    with ExitStack() as unless_regular:
        file = unless_regular.enter_context(open(path, "rb", opener=_without_waiting))
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, f"{kind_words(status.st_mode)}, not a regular file", os.fspath(path))
        # Files of the kernel (/proc) state no size; some wait for what comes, which is None here.
        if not status.st_size and file.read(1) != b"":
            raise OSError(errno.EINVAL, "a file of the kernel, not a regular file", os.fspath(path))
        unless_regular.pop_all()
    return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def read_bounded(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """The content of a regular file. Raises OSError where it cannot be read, or holds more than `most_bytes`."""
    with open_regular(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes >> 20} MiB", os.fspath(path))
    return content


def kind_words(mode: int) -> str:
    """The kind of a non-regular file with this mode (of os.stat), in words."""
    return _OTHER_KINDS.get(stat.S_IFMT(mode), "a special file")
