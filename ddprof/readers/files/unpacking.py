"""Packed bytes as a stream of unpacked blocks; the first bytes tell the packing."""

from __future__ import annotations

import bz2
import codecs
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import IO, Any

import numpy as np
from msgspec import Struct

from ddprof.tables import library

# Three times as fast as the standard library's, and optional.
_ZLIB: Any = import_module("isal.isal_zlib") if find_spec("isal") else zlib

# Each block costs some 100 numpy calls, so that large ones are cheaper while text and columns stay within a core's
# cache (2 MB; blocks of 2 MB are dearer again). A file begins with small ones: a small file's cost is fresh memory.
BLOCK_BYTES = 1 << 18
MOST_BLOCK_BYTES = 1 << 20
_RAW_BYTES = 1 << 18
_LAST_BYTES = 1 << 8  # at a time, just before damage: no more than an event is lost
# Traces pack 10 to 60 times (xz); zeros 1,000 times by gzip and 100,000 times by bzip2. What packs better than this is
# made to fill memory, or is nothing that anybody wants analyzed.
MAX_RATIO = 250
FREE_BYTES = 256 << 20  # unpacked of all files, whatever the ratio: read in seconds, one block at a time
MAX_HOLE_BYTES = 16 << 20  # a crash leaves pages of zeros, or a tail of them
MAX_DICTIONARY_BYTES = 256 << 20  # `xz -9` needs 65 MiB; the header may ask for 4 GiB
_GZIP = b"\x1f\x8b"
_DECOMPRESSORS: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (_GZIP, lambda: _ZLIB.decompressobj(31)),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\x5d\x00\x00", lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=MAX_DICTIONARY_BYTES)),
    (b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(memlimit=MAX_DICTIONARY_BYTES)),
)
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_BYTES = 1 << 17  # a frame's blocks hold no more, so that damage takes no more
# Of text that each object in it counts for at least: 87 to 250 in 734 traces, 3 where text is made to take hours.
_OBJECT_BYTES = 128
_LIST_BYTES = 16  # the same of lists: at most 0.44 of the text in 435 traces


def cost_bytes(block: bytes) -> int:
    """Bytes that unpacked text counts for: its own, or what so many objects or lists take in a trace."""
    text = np.frombuffer(block, np.uint8)  # bytes.count takes four times as long
    objects, lists = (int(np.count_nonzero(text == ord(opening))) for opening in "{[")
    return max(len(block), _OBJECT_BYTES * objects, _LIST_BYTES * lists)


_FILES = ContextVar("files", default=1)


@contextmanager
def among(files: int) -> Iterator[None]:
    """A share of FREE_BYTES for what is opened meanwhile, one of so many files: a hundred bombs cost as one does."""
    before = _FILES.set(files)
    try:
        yield
    finally:
        _FILES.reset(before)


def is_bomb(packed_bytes: int, unpacked_bytes: int) -> bool:
    """True where the ratio of unpacked to packed bytes is too high to go on."""
    return unpacked_bytes > max(FREE_BYTES // max(_FILES.get(), 1), MAX_RATIO * packed_bytes)


_BOMB = f"it unpacks to over {MAX_RATIO} times its size; the rest is not read"


class Budget:
    """Limit of what the members of an archive may unpack to together: that of one file of its size."""

    words = f"its files unpack to over {MAX_RATIO} times its size; the rest is not read"

    def __init__(self, packed_bytes: int) -> None:
        self._packed_bytes, self._given, self._total = packed_bytes, dict[str, int](), 0

    def gave(self, member: str, unpacked_bytes: int) -> None:
        """Count what a member has given; once, even if it is read again."""
        more = max(unpacked_bytes - self._given.get(member, 0), 0)
        self._total += more
        self._given[member] = self._given.get(member, 0) + more

    @property
    def is_spent(self) -> bool:
        """True where the input has grown too many times its size: no more of it is read."""
        return is_bomb(self._packed_bytes, self._total)


class MemberBudget(Struct, frozen=True):
    """An archive's remaining budget for one member."""

    archive: Budget
    member: str

    def is_spent(self, unpacked_bytes: int) -> bool:
        """True where the member must end after this many bytes."""
        self.archive.gave(self.member, unpacked_bytes)
        return self.archive.is_spent


class ByteStream:
    """Iterates over the unpacked content, without a byte order mark, in blocks of 256 KB to 1 MB.

    `damage` is set when the packing ends early or breaks; everything unpacked before that has then been yielded.
    """

    def __init__(self, raw: IO[bytes], budget: MemberBudget | None = None) -> None:
        self._raw, self._budget = raw, budget
        self.damage: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        head = self._raw.read(_RAW_BYTES)
        blocks = self._unpack(head)
        first = next(blocks, b"")
        first = first.removeprefix(codecs.BOM_UTF8)
        whole = self._within_budget(chain([first], blocks))
        return self._until_hole(whole) if first.lstrip()[:1] in (b"{", b"[") else whole

    def _within_budget(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        if self._budget is None:
            yield from blocks
            return
        given_bytes = 0
        for block in blocks:
            yield block
            given_bytes += cost_bytes(block)
            if self._budget.is_spent(given_bytes):
                self.damage = self._budget.archive.words
                return

    def _until_hole(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """JSON up to a hole: a sparse file can be larger than its disk."""
        empty_bytes = 0
        for block in blocks:
            is_empty = block.startswith(b"\0") and not block.strip(b"\0")
            empty_bytes = empty_bytes + len(block) if is_empty else 0
            if empty_bytes > MAX_HOLE_BYTES:
                self.damage = f"{MAX_HOLE_BYTES >> 20} MiB of zeros instead of text; the rest is not read"
                return
            yield block

    def _unpack(self, head: bytes) -> Iterator[bytes]:
        for magic, make in _DECOMPRESSORS:
            if head.startswith(magic):
                return self._decompress(head, magic, make)
        return self._zstd(head) if head.startswith(_ZSTD) else self._plain(head)

    def _plain(self, head: bytes) -> Iterator[bytes]:
        yield head
        block_bytes = BLOCK_BYTES
        while block := self._raw.read(block_bytes):
            yield block
            block_bytes = min(2 * block_bytes, MOST_BLOCK_BYTES)
        self.damage = self._stored_damage()

    def _stored_damage(self) -> str | None:
        """Damage at the end of a zip member, in words; None without any."""
        damage: str | None = getattr(self._raw, "damage", None)
        return damage

    def _decompress(self, head: bytes, magic: bytes, make: Callable[[], Any]) -> Iterator[bytes]:
        """Every member of a compressed file, up to any damage."""
        unpacker, data, packed_bytes, unpacked_bytes = make(), head, len(head), 0
        member_at, member_bytes = 0, 0  # where it begins in the stored bytes, and how much of it has been unpacked
        block_bytes = BLOCK_BYTES
        while True:
            try:
                block = unpacker.decompress(data, block_bytes)
            except (OSError, zlib.error, _ZLIB.error, lzma.LZMAError, EOFError) as error:
                self.damage = f"the compressed data is damaged ({error})"
                if magic == _GZIP:
                    yield from self._before_damage(member_at, member_bytes)
                return
            if block:
                yield block
                block_bytes = min(2 * block_bytes, MOST_BLOCK_BYTES)
                unpacked_bytes += cost_bytes(block)
                member_bytes += len(block)
                if is_bomb(packed_bytes, unpacked_bytes):
                    self.damage = _BOMB
                    return
            if unpacker.eof:
                data = unpacker.unused_data.lstrip(b"\0")
                while len(data) < len(magic) and (more := self._raw.read(_RAW_BYTES)):
                    packed_bytes += len(more)
                    data = (data + more).lstrip(b"\0")
                if not data.startswith(magic):
                    ignored = "data after the end of the compressed part was ignored" if data else None
                    self.damage = self._stored_damage() or ignored
                    return
                unpacker, member_at, member_bytes = make(), packed_bytes - len(data), 0
                continue
            data = getattr(unpacker, "unconsumed_tail", b"")
            if not data and getattr(unpacker, "needs_input", True):
                data = self._raw.read(_RAW_BYTES)
                packed_bytes += len(data)
                if not data:
                    self.damage = self._stored_damage() or "the compressed data ends early"
                    return

    def _zstd(self, head: bytes) -> Iterator[bytes]:
        """Every frame, by pyarrow: of the standard libraries only the newest know zstd."""
        pa = library("pyarrow")
        packed, unpacked_bytes = _Stored(head, self._raw), 0
        unpacked = pa.CompressedInputStream(pa.PythonFile(packed, "r"), "zstd")
        try:
            while block := unpacked.read(_ZSTD_BLOCK_BYTES):
                yield block
                unpacked_bytes += cost_bytes(block)
                if is_bomb(packed.given_bytes, unpacked_bytes):
                    self.damage = _BOMB
                    return
            self.damage = self._stored_damage()
        except OSError as error:
            self.damage = f"the compressed data is damaged ({error})"

    def _before_damage(self, member_at: int, seen_bytes: int) -> Iterator[bytes]:
        """Bytes between a gzip member's last complete block and its damage, which the unpacker withheld."""
        try:
            self._raw.seek(member_at)
        except (OSError, ValueError):
            return
        unpacker, data = zlib.decompressobj(31), b""
        while data := data or self._raw.read(_RAW_BYTES):
            try:
                block = unpacker.decompress(data, min(seen_bytes, BLOCK_BYTES) or _LAST_BYTES)
            except zlib.error:
                return
            data = unpacker.unconsumed_tail
            if block and not seen_bytes:
                yield block
            seen_bytes -= min(seen_bytes, len(block))


class _Stored(io.RawIOBase):
    """Stored bytes whose `head` has been read already."""

    def __init__(self, head: bytes, raw: IO[bytes]) -> None:
        self._head, self._raw, self.given_bytes = io.BytesIO(head), raw, 0

    def readable(self) -> bool:
        """True, as pyarrow asks."""
        return True

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, fewer at the end."""
        content = self._head.read(size) or self._raw.read(size)
        self.given_bytes += len(content)
        return content
