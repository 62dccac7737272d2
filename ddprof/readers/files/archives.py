"""Tar and zip archives as folders, read in one pass: reading members in order unpacks each byte once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import local
from typing import IO

from ddprof.errors import DdprofError
from ddprof.readers.files.opening import open_file
from ddprof.readers.files.remote import is_url
from ddprof.readers.files.tar_members import TarMembers
from ddprof.readers.files.unpacking import MemberBudget
from ddprof.readers.files.zip_members import ZipMembers

MAGIC = b"PK\x03\x04"
MAX_MEMBERS = 20_000  # a trace, a sidecar, a dump and worker records of 4,096 ranks are 16,384
ZIP_MAGIC_BYTES = len(MAGIC)


class _Kept(local):
    """This thread's last archive, by path, state and process: a forked process shares the file's position."""

    def __init__(self) -> None:
        self.archives: dict[tuple[str, int, int, int], ZipMembers | TarMembers] = {}


_KEPT = _Kept()


def is_zip(stored: bytes) -> bool:
    """True where the stored bytes of a file begin as a zip file."""
    return stored.startswith(MAGIC)


@contextmanager
def open_archive(path: str) -> Iterator[ZipMembers | TarMembers]:
    """The archive at a path, at the position where this process left it. Raises OSError or ARCHIVE_DAMAGE."""
    key = _key(path)
    kept = _KEPT.archives
    archive = (kept.pop(key, None) if key else None) or _opened(path)
    is_sound = False
    try:
        yield archive
        is_sound = True
    except DdprofError:  # of whoever reads a member: the archive itself has no defect
        is_sound = True
        raise
    finally:
        while kept:
            kept.popitem()[1].close()
        if key and is_sound:
            kept[key] = archive
        else:
            archive.close()


def shown_members(archive: ZipMembers | TarMembers) -> Iterator[tuple[str, int]]:
    """Name and size in bytes of every member that is not hidden. Raises OSError after MAX_MEMBERS."""
    for count, (name, size_bytes) in enumerate(archive.members(), 1):
        if count > MAX_MEMBERS:
            raise OSError(f"more than {MAX_MEMBERS} files in one archive: the others are left out")
        if archive.budget.is_spent:
            raise OSError(f"{archive.budget.words}, behind the first {count - 1} of its files")
        if not _hidden(name):
            yield name, size_bytes


@contextmanager
def open_member(archive: ZipMembers | TarMembers, name: str) -> Iterator[tuple[IO[bytes], MemberBudget]]:
    """A member as stored in its archive, and what it may unpack to. Raises as the archive's `open` does."""
    with archive.open(name) as stored:
        yield stored, MemberBudget(archive.budget, name)


def _opened(path: str) -> ZipMembers | TarMembers:
    with ExitStack() as unless_sound:
        outer = unless_sound.enter_context(open_file(path))
        stored = outer.read(ZIP_MAGIC_BYTES)
        outer.seek(0)
        opened = ZipMembers(outer) if is_zip(stored) else TarMembers(outer)
        unless_sound.pop_all()
    return opened


def _key(path: str) -> tuple[str, int, int, int] | None:
    """Identity of a local file's content; None in a store, which reports no changes."""
    if is_url(path):
        return None
    status = os.stat(path)
    return path, status.st_size, status.st_mtime_ns, os.getpid()


def _hidden(name: str) -> bool:
    return any(part.startswith((".", "__MACOSX")) and part not in (".", "..") for part in name.split("/"))
