"""Places that keep facts: the interface that the engine uses, and the default one, a folder."""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Protocol

from ddprof.untrusted.regular_files import open_regular

Chunk = bytes | memoryview  # of a content
MAX_ENTRY_BYTES = 1 << 30  # the facts of a rank are some MB
# Two thousand ranks of 256k events; ccache keeps as much (https://ccache.dev/manual/latest.html, max_size).
MOST_BYTES = 5 << 30
LONGEST_WRITE_S = 3600  # of one entry; what is older was left by a process that was killed
# `.arrow`: of earlier versions, which nobody reads any more.
ENTRY, _PART = re.compile(r"[0-9a-f]{20}\.(?:facts|arrow)"), re.compile(r"\.[0-9a-f]{20}\.[0-9a-f]{16}\.part")


class Place(Protocol):
    """Keeps contents by key; processes on several machines may use one at once."""

    at_once: ClassVar[int]  # how many entries are asked for, or sent, side by side

    def load(self, key: str, believed: Collection[int]) -> bytes | None:
        """The content kept under a key, no longer than an entry may be.

        None where there is none, or where a place that knows owners has none of `believed` as its owner. Raises OSError
        or ImportError where the place does not answer.
        """

    def save(self, key: str, chunks: Iterable[Chunk]) -> None:
        """Keep a content atomically. Raises OSError or ImportError where that fails."""

    def prune(self) -> None:
        """Remove the least recently used contents until the rest fits the allowed size."""


@dataclass(frozen=True)
class Folder:
    """One file per key in a folder, which is created on the first write."""

    path: str
    most_bytes: int = MOST_BYTES
    at_once: ClassVar[int] = 1

    def load(self, key: str, believed: Collection[int]) -> bytes | None:
        """The content under a key; None where there is none or no believed user wrote it."""
        with suppress(OSError), open_regular(self._file(key)) as file:
            if os.fstat(file.fileno()).st_uid not in believed:
                return None
            content = file.read(MAX_ENTRY_BYTES)
            with suppress(OSError):  # another user's: its age counts from when it was written
                os.utime(file.fileno())
            return content
        return None

    def save(self, key: str, chunks: Iterable[Chunk]) -> None:
        """Keep a content atomically, by a temporary file and a rename. Raises OSError."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        aside = os.path.join(self.path, f".{key}.{secrets.token_hex(8)}.part")
        try:
            with open(aside, "xb", buffering=0) as file:
                for chunk in chunks:
                    file.write(chunk)
            os.replace(aside, self._file(key))
        finally:
            with suppress(OSError):  # renamed, else of no use
                os.unlink(aside)

    def prune(self) -> None:
        """Remove the least recently used files and the leftovers of killed processes."""
        entries = []
        now_s = time.time()
        with suppress(OSError), os.scandir(self.path) as listing:
            for item in listing:
                with suppress(OSError):
                    status = item.stat(follow_symlinks=False)
                    if _PART.fullmatch(item.name) and now_s - status.st_mtime > LONGEST_WRITE_S:
                        os.unlink(item.path)
                    elif ENTRY.fullmatch(item.name):
                        entries.append((status.st_mtime_ns, status.st_size, item.path))
        excess_bytes = sum(size for _, size, _ in entries) - self.most_bytes
        for _, size, path in sorted(entries):
            if excess_bytes <= 0:
                return
            with suppress(OSError):
                os.unlink(path)
            excess_bytes -= size

    def _file(self, key: str) -> str:
        return os.path.join(self.path, f"{key}.facts")


def users_folder() -> Folder | None:
    """`ddprof/facts` in the user's cache; None where it is not writable or is another user's folder or link."""
    stated = os.environ.get("XDG_CACHE_HOME", "")
    base = stated if os.path.isabs(stated) else os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.join(base, "ddprof", "facts")
    if not os.path.isabs(path) or not all(map(_is_ours, (os.path.dirname(path), path))):  # not absolute: no home
        return None
    with suppress(OSError):
        os.makedirs(path, mode=0o700, exist_ok=True)
        return Folder(path) if os.access(path, os.W_OK | os.X_OK) else None
    return None


def _is_ours(path: str) -> bool:
    """True where nobody else controls the path: it does not exist yet, or is this user's or root's folder or link."""
    try:
        status = os.lstat(path)
    except OSError:
        return True
    return status.st_uid in (0, os.getuid()) and (stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode))
