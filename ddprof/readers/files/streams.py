"""Bytes of a file as a stream of blocks, however it is packed: the first bytes decide, never the suffix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from ddprof.errors import NoUsableInput
from ddprof.readers.files.archives import ZIP_MAGIC_BYTES, is_zip, open_archive, open_member, shown_members
from ddprof.readers.files.opening import ARCHIVE_DAMAGE, UNREADABLE, one_line, open_file
from ddprof.readers.files.tar_members import is_tar
from ddprof.readers.files.unpacking import ByteStream

# Sidecars, manifests and dumps: 20,000 collectives with their stacks, ten times NCCL's default, are about 25 MB.
MAX_SMALL_BYTES = 32 << 20


@contextmanager
def open_raw(path: str, head_only: bool = False) -> Iterator[IO[bytes]]:
    """The packed bytes of a local file or an fsspec URL.

    `head_only`: little more than the first bytes is wanted. Raises NoUsableInput, in one line, where it cannot be
    opened.
    """
    try:
        with open_file(path, head_only) as stored:
            yield stored
    except UNREADABLE as error:
        raise NoUsableInput(f"{path}: cannot be read: {one_line(error)}") from error


@contextmanager
def open_blocks(path: str, member: str | None = None, head_only: bool = False) -> Iterator[ByteStream]:
    """The unpacked content of a file as a `ByteStream`. Raises NoUsableInput where it cannot be opened."""
    if member is None:
        with open_raw(path, head_only) as raw:
            yield ByteStream(raw)
        return
    try:
        with open_archive(path) as archive, open_member(archive, member) as (stored, budget):
            yield ByteStream(stored, budget)
    except UNREADABLE as error:
        raise NoUsableInput(f"{path}: cannot be read: {one_line(error)}") from error


def read_small(path: str, member: str | None = None, most_bytes: int = MAX_SMALL_BYTES) -> bytes:
    """The unpacked content of a whole file. Raises NoUsableInput where it cannot be opened, or is too large."""
    parts, held = [], 0
    with open_blocks(path, member) as blocks:
        for block in blocks:
            parts.append(block)
            held += len(block)
            if held > most_bytes:
                raise NoUsableInput(f"{path}: unpacks to more than {most_bytes >> 20} MiB, too much for its kind")
    return b"".join(parts)


def exceeds(paths: Sequence[str], most_bytes: int) -> bool:
    """True where the files unpack to more than `most_bytes` together; unpacks no more than that and keeps nothing.

    Raises NoUsableInput or OSError where a file cannot be opened.
    """
    seen = 0
    for size in (size for path in paths for size in _block_bytes(path)):
        seen += size
        if seen > most_bytes:
            return True
    return False


def _block_bytes(path: str) -> Iterator[int]:
    """Sizes of the unpacked blocks of a file; for an archive its own first, which shows that its list is short."""
    with open_raw(path) as raw:
        packed = is_zip(raw.read(ZIP_MAGIC_BYTES))
        raw.seek(0)
        for at, block in enumerate(ByteStream(raw)):
            packed |= not at and is_tar(block)
            yield len(block)
    if not packed:
        return
    try:
        with open_archive(path) as archive:
            for member, _ in shown_members(archive):
                with open_member(archive, member) as (stored, budget):
                    yield from (len(block) for block in ByteStream(stored, budget))
    except (OSError, *ARCHIVE_DAMAGE) as error:
        words = one_line(error) if isinstance(error, OSError) else f"damaged archive ({one_line(error)})"
        raise OSError(f"{path}: {words}") from error
