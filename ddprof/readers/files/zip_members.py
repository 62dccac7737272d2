"""Zip files: members lie anywhere, and one that is damaged is read as far as it can be."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, cast

from ddprof.readers.files.unpacking import MAX_RATIO, is_bomb

MAGIC = b"PK\x03\x04"


class ZipMembers:
    """A zip file whose stored bytes are `outer`. Raises BadZipFile, OSError or ValueError where it is damaged."""

    def __init__(self, outer: IO[bytes]) -> None:
        self._outer, self._zip = outer, zipfile.ZipFile(outer)
        self._infos = {info.filename: info for info in reversed(self._zip.infolist()) if not info.is_dir()}

    def members(self) -> Iterator[tuple[str, int]]:
        """Name and size in bytes of every file, in the order of names; of members of one name the first."""
        yield from ((name, self._infos[name].file_size) for name in sorted(self._infos))

    def open(self, name: str) -> IO[bytes]:
        """A member, which ends where the directory says. Raises KeyError, or OSError where its size is absurd."""
        info = self._infos[name]
        if is_bomb(info.compress_size, info.file_size):
            raise OSError(f"{name} unpacks to more than {MAX_RATIO} times its size")
        opened = self._zip.open(info)
        opened._expected_crc = None  # type: ignore[attr-defined]  # it would give nothing of a block that it ends
        return cast(IO[bytes], _Member(opened, info.CRC))

    def close(self) -> None:
        """Close the file underneath."""
        self._outer.close()


class _Member(io.RawIOBase):
    """A member whose damage ends it, and is told by `damage`, instead of taking what was read before."""

    def __init__(self, opened: IO[bytes], checksum: int) -> None:
        self._opened, self._expected, self._sum = opened, checksum, 0
        self.damage: str | None = None

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, fewer or none at the end."""
        try:
            content = self._opened.read(size)
        except (zlib.error, zipfile.BadZipFile, EOFError, OSError) as error:
            self.damage = f"the compressed data is damaged ({error})"
            return b""
        self._sum = zlib.crc32(content, self._sum)
        if not content and size and self._sum != self._expected:
            self.damage = "its checksum is not that of its content"
        return content

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """To an offset; what is read twice is not checked."""
        self._sum = self._expected
        return self._opened.seek(offset, whence)

    def close(self) -> None:
        """Close the member."""
        self._opened.close()
        super().close()
