"""Tar and zip archives as folders, read in one pass: whoever asks for members in their order unpacks each byte once."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

from ddprof.errors import DdprofError
from ddprof.readers.files.opening import open_file
from ddprof.readers.files.tar_members import TarMembers
from ddprof.readers.files.unpacking import MAX_RATIO, is_bomb

MAX_MEMBERS = 20_000  # a trace, a sidecar, a dump and worker records of 4,096 ranks are 16,384
_ZIP_MAGIC = b"PK\x03\x04"
ZIP_MAGIC_BYTES = len(_ZIP_MAGIC)


class ZipMembers:
    """A zip file whose stored bytes are `outer`. Members lie anywhere, so they come in the order of their names."""

    def __init__(self, outer: IO[bytes]) -> None:
        self._outer, self._zip = outer, zipfile.ZipFile(outer)
        self._infos = {info.filename: info for info in reversed(self._zip.infolist()) if not info.is_dir()}

    def members(self) -> Iterator[tuple[str, int]]:
        """Name and size in bytes of every file; of members of one name the first."""
        yield from ((name, self._infos[name].file_size) for name in sorted(self._infos))

    def open(self, name: str) -> IO[bytes]:
        """A member, which ends where the directory says. Raises KeyError, or OSError where its size is absurd."""
        info = self._infos[name]
        if is_bomb(info.compress_size, info.file_size):
            raise OSError(f"{name} unpacks to more than {MAX_RATIO} times its size")
        return self._zip.open(info)

    def close(self) -> None:
        """Close the file underneath."""
        self._outer.close()


# The archive that was read last in this process, by path, state and process: a forked one shares the file's position.
_kept: dict[tuple[str, int, int, int], ZipMembers | TarMembers] = {}


def is_zip(stored: bytes) -> bool:
    """Whether the first bytes of a file, as it is stored, are those of a zip file."""
    return stored.startswith(_ZIP_MAGIC)


@contextmanager
def open_archive(path: str) -> Iterator[ZipMembers | TarMembers]:
    """The archive at a path, where the last reader of this process left it. Raises OSError or ARCHIVE_DAMAGE."""
    key = _key(path)
    archive = (_kept.pop(key, None) if key else None) or _opened(path)
    is_sound = False
    try:
        yield archive
        is_sound = True
    except DdprofError:  # of whoever reads a member: the archive itself has no defect
        is_sound = True
        raise
    finally:
        while _kept:
            _kept.popitem()[1].close()
        if key and is_sound:
            _kept[key] = archive
        else:
            archive.close()


def shown_members(archive: ZipMembers | TarMembers) -> Iterator[tuple[str, int]]:
    """Name and size in bytes of every member that is not hidden. Raises OSError after MAX_MEMBERS."""
    for count, (name, size_bytes) in enumerate(archive.members(), 1):
        if count > MAX_MEMBERS:
            raise OSError(f"more than {MAX_MEMBERS} files in one archive: the others are left out")
        if not _hidden(name):
            yield name, size_bytes


def _opened(path: str) -> ZipMembers | TarMembers:
    with ExitStack() as unless_sound:
        outer = unless_sound.enter_context(open_file(path))
        stored = outer.read(ZIP_MAGIC_BYTES)
        outer.seek(0)
        opened = ZipMembers(outer) if is_zip(stored) else TarMembers(outer, path)
        unless_sound.pop_all()
    return opened


def _key(path: str) -> tuple[str, int, int, int] | None:
    """None for what is not on a local disk, whose changes nobody tells."""
    if "://" in path:
        return None
    status = os.stat(path)
    return path, status.st_size, status.st_mtime_ns, os.getpid()


def _hidden(name: str) -> bool:
    return any(part.startswith((".", "__MACOSX")) and part not in (".", "..") for part in name.split("/"))
