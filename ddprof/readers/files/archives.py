"""Tar and zip archives as folders, read in one pass: reading members in order unpacks each byte once."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import local
from typing import IO, Any, cast

from ddprof.errors import DdprofError
from ddprof.readers.files.opening import open_file
from ddprof.readers.files.remote import is_url
from ddprof.readers.files.tar_members import TarMembers
from ddprof.readers.files.unpacking import MAX_RATIO, Budget, MemberBudget, is_bomb

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


class ZipMembers:
    """A zip file whose stored bytes are `outer`. Raises BadZipFile, OSError or ValueError where it is damaged."""

    def __init__(self, outer: IO[bytes]) -> None:
        self._outer, self._zip = outer, zipfile.ZipFile(outer)
        self._infos = {info.filename: info for info in reversed(self._zip.infolist()) if not info.is_dir()}
        self.budget = Budget(outer.seek(0, io.SEEK_END))

    def members(self) -> Iterator[tuple[str, int]]:
        """Name and size in bytes of every file, in the order of names; of members of one name the first."""
        yield from ((name, self._infos[name].file_size) for name in sorted(self._infos))

    def open(self, name: str) -> IO[bytes]:
        """A member, up to the end that the directory states. Raises KeyError, or OSError for an absurd size."""
        info = self._infos[name]
        if is_bomb(info.compress_size, info.file_size):
            raise OSError(f"{name} unpacks to more than {MAX_RATIO} times its size")
        # The others are unpacked by zipfile in more bytes at once than are wanted.
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise OSError(f"{name} is packed in a way that is not supported: only stored and deflated members are read")
        opened: Any = self._zip.open(info)
        opened._expected_crc = None  # it would give nothing of a block that it ends
        return cast(IO[bytes], _Member(opened, info.CRC))

    def close(self) -> None:
        """Close the file underneath."""
        self._outer.close()


class _Member(io.RawIOBase):
    """A member that ends at its damage, reported in `damage`, and keeps what was read before."""

    def __init__(self, opened: IO[bytes], checksum: int) -> None:
        self._opened, self._sum = opened, 0
        self._expected: int | None = checksum
        self.damage: str | None = None

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, fewer or none at the end."""
        try:
            content = self._opened.read(size)
        except (zlib.error, zipfile.BadZipFile, EOFError, OSError) as error:
            self.damage = f"the compressed data is damaged ({error})"
            return b""
        self._sum = zlib.crc32(content, self._sum)
        if not content and size and self._expected is not None and self._sum != self._expected:
            self.damage = "its checksum is not that of its content"
        return content

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek to an offset; re-read bytes are not checked again."""
        self._expected = None
        return self._opened.seek(offset, whence)

    def close(self) -> None:
        """Close the member."""
        self._opened.close()
        super().close()
