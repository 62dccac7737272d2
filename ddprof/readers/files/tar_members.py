"""Tar files, packed or not: members come in their order; to go back in a packed file is to start again."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from typing import IO, Any

from ddprof.readers.files.unpacking import BLOCK_BYTES, Budget, ByteStream

MAX_HEADER_BYTES = 1 << 20  # names and attributes of one member; a path has 4 KB at most
_MAGIC = b"ustar"
_MAGIC_AT = 257
_SPARE_HEADERS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_LONG_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_ENDS = (tarfile.EmptyHeaderError, tarfile.EOFHeaderError)  # type: ignore[attr-defined]


def is_tar(head: bytes) -> bool:
    """True where unpacked bytes begin as a tar file."""
    return head[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] == _MAGIC


class TarMembers:
    """A tar file whose stored bytes are `outer`. Raises ReadError, OSError or ValueError where it is damaged."""

    def __init__(self, outer: IO[bytes]) -> None:
        self._outer = outer
        self.budget = Budget(outer.seek(0, io.SEEK_END))
        outer.seek(0)
        self._is_plain = is_tar(outer.read(tarfile.BLOCKSIZE))
        self._start()

    def _start(self) -> None:
        self._outer.seek(0)
        # "r:": bytes that are not packed, wherever they are read; "r|": read forward.
        read: Any = (self._outer, "r:") if self._is_plain else (_Blocks(ByteStream(self._outer)), "r|")
        self._tar = tarfile.open(None, read[1], read[0], BLOCK_BYTES, tarinfo=_Header)  # noqa: SIM115, closed with `outer`
        self._seen: dict[str, tarfile.TarInfo] = {}
        self._untouched: tarfile.TarInfo | None = None  # the last header that was read, its content not yet

    def members(self) -> Iterator[tuple[str, int]]:
        """Name and size in bytes, in the order of the archive; of members of one name the first.

        Links, and files with holes, which claim any size, are left out.
        """
        if self._seen:
            self._start()
        while (member := self._next()) is not None:
            yield member.name, member.size

    def open(self, name: str) -> IO[bytes]:
        """A member, valid until the next is opened. Raises KeyError for an unknown name."""
        member = self._seen.get(name)
        if member is not None and member is not self._untouched and not self._is_plain:
            self._start()
            member = None
        while member is None:
            candidate = self._next()
            if candidate is None:
                raise KeyError(f"no file {name} in the archive")
            member = candidate if candidate.name == name else None
        self._untouched = None
        opened = self._tar.extractfile(member)
        assert opened is not None  # regular files have content
        return opened

    def close(self) -> None:
        """Close the file underneath."""
        self._outer.close()

    def _next(self) -> tarfile.TarInfo | None:
        while (member := self._tar.next()) is not None:
            if member.isreg() and not member.issparse() and member.name not in self._seen:
                self._seen[member.name] = self._untouched = member
                return member
        return None


class _Header(tarfile.TarInfo):
    """A header whose damage does not read as the end of the archive, and which claims no memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        """The header in a block of 512 bytes. Raises tarfile.ReadError where it is damaged or too long."""
        try:
            header = super().frombuf(buf, encoding, errors)
        except _ENDS:
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error
        if header.type in (*_SPARE_HEADERS, *_LONG_NAMES) and header.size > MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {header.size} bytes")
        return header


class _Blocks:
    """The blocks of a stream, of which tarfile reads one after the other."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream, self._blocks, self._held = stream, iter(stream), memoryview(b"")

    def read(self, size: int) -> bytes:
        """At most `size` bytes, none at the end. Raises ReadError where the packing is damaged."""
        if not self._held:
            self._held = memoryview(next(self._blocks, b""))
            if not self._held and self._stream.damage:
                raise tarfile.ReadError(self._stream.damage)
        part, self._held = self._held[:size], self._held[size:]
        return bytes(part)
