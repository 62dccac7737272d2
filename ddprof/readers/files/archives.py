"""Tar and zip archives as folders."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator
from typing import IO

from ddprof.readers.files.streams import ARCHIVE_DAMAGE, one_line, open_blocks, open_file, open_raw

_TAR_MAGIC = b"ustar"
_TAR_MAGIC_AT = 257


def is_archive(path: str) -> bool:
    """True for a zip file and for a tar file, packed or not, by content."""
    with open_raw(path) as raw:
        if raw.read(4) == b"PK\x03\x04":
            return True
    with open_blocks(path) as blocks:
        head = next(iter(blocks), b"")
    return head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + len(_TAR_MAGIC)] == _TAR_MAGIC


def members(path: str) -> Iterator[tuple[str, int]]:
    """Name and size in bytes of every regular file in an archive, hidden ones left out.

    Raises OSError, in one line, where it is damaged.
    """
    try:
        with open_file(path) as outer:
            listed = _listed(outer)
    except ARCHIVE_DAMAGE as error:
        raise OSError(f"{path}: damaged archive ({one_line(error)})") from error
    yield from ((name, size) for name, size in sorted(listed) if not _hidden(name))


def _listed(outer: IO[bytes]) -> list[tuple[str, int]]:
    is_zip = zipfile.is_zipfile(outer)
    outer.seek(0)
    if is_zip:
        with zipfile.ZipFile(outer) as archive:
            return [(i.filename, i.file_size) for i in archive.infolist() if not i.is_dir()]
    with tarfile.open(fileobj=outer) as tar:
        return [(m.name, m.size) for m in tar if m.isfile()]


def _hidden(name: str) -> bool:
    return any(part.startswith((".", "__MACOSX")) and part not in (".", "..") for part in name.split("/"))
