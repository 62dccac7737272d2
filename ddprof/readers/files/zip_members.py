"""Zip files as folders whose members unpack block by block, by any method."""

from __future__ import annotations

import bz2
import copy
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, cast

from ddprof.readers.files.unpacking import MAX_DICTIONARY_BYTES, MAX_RATIO, Budget, is_bomb

_ZSTD = 93  # zipfile knows it from Python 3.14 on
_BZIP2_BLOCK_BYTES = 900_000  # unpacked at once, however little of it is wanted
_LZMA_HEADER_BYTES = 4  # version, and the size of the properties (APPNOTE.TXT 5.8.8)


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
        checksum: int | None = info.CRC
        if info.compress_type == _ZSTD:  # opened as stored: whoever reads it unpacks what begins as a frame
            info, checksum = copy.copy(info), None
            info.compress_type, info.file_size = zipfile.ZIP_STORED, info.compress_size
        opened: Any = self._zip.open(info)
        opened._expected_crc = None  # it would give nothing of a block that it ends
        if info.compress_type in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
            # zipfile asks the unpacker of deflate alone for no more than it wants.
            is_bzip2 = info.compress_type == zipfile.ZIP_BZIP2
            opened._decompressor = _Blockwise(_Bzip2(), partial(self._held, name)) if is_bzip2 else _Blockwise(_Lzma())
            opened._compress_type = zipfile.ZIP_DEFLATED
        elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise OSError(f"{name} is packed in a way that is not supported")
        return cast(IO[bytes], _Member(opened, checksum))

    def _held(self, name: str) -> None:
        """Count the block of a member that was unpacked as a whole for its first bytes."""
        self.budget.gave(f"{name} (block)", _BZIP2_BLOCK_BYTES)

    def close(self) -> None:
        """Close the file underneath."""
        self._outer.close()


class _Member(io.RawIOBase):
    """A member that ends at its damage, reported in `damage`, and keeps what was read before."""

    def __init__(self, opened: IO[bytes], checksum: int | None) -> None:
        self._opened, self._expected, self._sum = opened, checksum, 0
        self.damage: str | None = None

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, fewer or none at the end."""
        try:
            content = self._opened.read(size)
        except (zlib.error, lzma.LZMAError, zipfile.BadZipFile, EOFError, OSError) as error:
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


class _Pending(bytes):
    """Empty bytes that are not the end: the unpacker holds more."""

    def __bool__(self) -> bool:
        return True


class _Blockwise:
    """An unpacker with zipfile's interface for deflate: `decompress(data, most)` and `unconsumed_tail`."""

    def __init__(self, unpacker: Any, holds_more: Callable[[], None] = lambda: None) -> None:
        self._unpacker, self._holds_more = unpacker, holds_more

    def decompress(self, data: bytes, most_bytes: int) -> bytes:
        """At most `most_bytes` bytes."""
        content = cast(bytes, self._unpacker.decompress(data, most_bytes)) if not self.eof else b""
        if self.unconsumed_tail:
            self._holds_more()
        return content

    def flush(self) -> bytes:
        """Return b"", as nothing remains."""
        return b""

    @property
    def eof(self) -> bool:
        """True at the end of the data."""
        return bool(self._unpacker.eof)

    @property
    def unconsumed_tail(self) -> bytes:
        """True, in a condition, while more can come without more data."""
        return b"" if self.eof or self._unpacker.needs_input else _Pending()


_Bzip2 = bz2.BZ2Decompressor


class _Lzma:
    """LZMA behind its header in zip files."""

    def __init__(self) -> None:
        self._head, self._inner = b"", cast(Any, None)

    @property
    def eof(self) -> bool:
        """True at the end of the data."""
        return self._inner is not None and bool(self._inner.eof)

    @property
    def needs_input(self) -> bool:
        """True where no output comes without more data."""
        return self._inner is None or bool(self._inner.needs_input)

    def decompress(self, data: bytes, most_bytes: int) -> bytes:
        """At most `most_bytes` bytes. Raises LZMAError."""
        if self._inner is None:
            self._head += data
            size = int.from_bytes(self._head[2:_LZMA_HEADER_BYTES], "little") + _LZMA_HEADER_BYTES
            if len(self._head) < max(size, _LZMA_HEADER_BYTES):
                return b""
            properties, data = self._head[_LZMA_HEADER_BYTES:size], self._head[size:]
            if int.from_bytes(properties[1:5], "little") > MAX_DICTIONARY_BYTES or len(properties) != 5:
                raise lzma.LZMAError("Memory usage limit exceeded")
            lc_lp_pb = properties[0]
            filters = [
                {
                    "id": lzma.FILTER_LZMA1,
                    "dict_size": int.from_bytes(properties[1:5], "little"),
                    "lc": lc_lp_pb % 9,
                    "lp": lc_lp_pb // 9 % 5,
                    "pb": min(lc_lp_pb // 45, 4),
                }
            ]
            self._inner = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters)
        return cast(bytes, self._inner.decompress(data, most_bytes))
