"""Bytes of a file as a stream of blocks, whatever it is packed in: decided by its first bytes, never by its suffix."""

from __future__ import annotations

import bz2
import codecs
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import IO, Any

from ddprof.errors import NoUsableInput

# Three times as fast as the standard library's, and optional.
_ZLIB: Any = import_module("isal.isal_zlib") if find_spec("isal") else zlib

BLOCK_BYTES = 1 << 18  # text and the objects made of it stay within a core's cache: a tenth faster than 1 MB
_RAW_BYTES = 1 << 18
_GZIP = b"\x1f\x8b"
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_DECOMPRESSORS: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (_GZIP, lambda: _ZLIB.decompressobj(31)),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", lzma.LZMADecompressor),
)
_ZSTD = b"\x28\xb5\x2f\xfd"
# What damage raises in an archive; RuntimeError: a member with a password, or packed in a way unknown to zipfile.
ARCHIVE_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError)
_UNREADABLE = (OSError, ValueError, ImportError, KeyError, *ARCHIVE_DAMAGE)


class ByteStream:
    """Iterates over the unpacked content in blocks of about 256 KB.

    `damage` is set when the packing ends early or breaks; everything unpacked before that has then been yielded.
    """

    def __init__(self, raw: IO[bytes], label: str) -> None:
        self._raw, self._label = raw, label
        self.damage: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        head = self._raw.read(_RAW_BYTES)
        if head.startswith(_ZSTD):
            raise NoUsableInput(f"{self._label}: zstd is not supported: unpack it with 'zstd -d' first")
        blocks = self._unpack(head)
        first = next(blocks, b"")
        for bom, encoding in _UTF16.items():
            if first.startswith(bom):
                return _transcode(first[len(bom) :], blocks, encoding)
        return _chain(first, blocks)

    def _unpack(self, head: bytes) -> Iterator[bytes]:
        for magic, make in _DECOMPRESSORS:
            if head.startswith(magic):
                return self._decompress(head, magic, make)
        return self._plain(head)

    def _plain(self, head: bytes) -> Iterator[bytes]:
        yield head
        while block := self._raw.read(BLOCK_BYTES):
            yield block

    def _decompress(self, head: bytes, magic: bytes, make: Callable[[], Any]) -> Iterator[bytes]:
        """Every member of a compressed file, as far as it is sound."""
        unpacker, data = make(), head
        while True:
            try:
                block = unpacker.decompress(data, BLOCK_BYTES)
            except (OSError, zlib.error, _ZLIB.error, lzma.LZMAError, EOFError) as error:
                self.damage = f"the compressed data is damaged ({error})"
                return
            if block:
                yield block
            if unpacker.eof:
                data = unpacker.unused_data.lstrip(b"\0") or self._raw.read(_RAW_BYTES)
                if not data.startswith(magic):
                    self.damage = "data after the end of the compressed part was ignored" if data else None
                    return
                unpacker = make()
                continue
            data = getattr(unpacker, "unconsumed_tail", b"")
            if not data and getattr(unpacker, "needs_input", True):
                data = self._raw.read(_RAW_BYTES)
                if not data:
                    self.damage = "the compressed data ends early"
                    return


def _chain(first: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from blocks


def _transcode(first: bytes, blocks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    yield decoder.decode(first).encode()
    for block in blocks:
        yield decoder.decode(block).encode()


def open_file(path: str) -> IO[bytes]:
    """A local file or an fsspec URL, opened for reading as it is stored.

    Raises OSError, ValueError or ImportError (no package for the URL's protocol).
    """
    if "://" not in path:
        return open(path, "rb")
    import fsspec  # a tenth of the start-up time of an analysis, for those who read from elsewhere

    opened: IO[bytes] = fsspec.open(path, "rb", compression=None).open()
    return opened


@contextmanager
def open_raw(path: str, member: str | None = None) -> Iterator[IO[bytes]]:
    """The packed bytes of a local file, an fsspec URL, or a member of a tar or zip archive.

    Raises NoUsableInput, in one line, where it cannot be opened.
    """
    try:
        with open_file(path) as outer:
            if member is None:
                yield outer
                return
            with _open_member(outer, member) as inner:
                yield inner
    except _UNREADABLE as error:
        raise NoUsableInput(f"{path}: cannot be read: {one_line(error)}") from error


@contextmanager
def _open_member(outer: IO[bytes], member: str) -> Iterator[IO[bytes]]:
    if zipfile.is_zipfile(outer):
        outer.seek(0)
        with zipfile.ZipFile(outer) as archive, archive.open(member) as inner:
            yield inner
        return
    outer.seek(0)
    with tarfile.open(fileobj=outer) as tar:
        found = tar.extractfile(member)
        if found is None:
            raise KeyError(f"{member} is not a file")
        with found as inner:
            yield inner


@contextmanager
def open_blocks(path: str, member: str | None = None) -> Iterator[ByteStream]:
    """The unpacked content of a file as a `ByteStream`. Raises NoUsableInput where it cannot be opened."""
    with open_raw(path, member) as raw:
        yield ByteStream(raw, path if member is None else f"{path}!{member}")


def read_whole(path: str, member: str | None = None) -> bytes:
    """The unpacked content of a file that is small. Raises NoUsableInput where it cannot be opened."""
    with open_blocks(path, member) as blocks:
        return b"".join(blocks)


def one_line(error: BaseException) -> str:
    """What the error says, its first line: those of tarfile have one for each kind of packing."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).splitlines()[0]
