"""How large files are once they are unpacked: a small archive can hold more than a disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddprof.readers.files.archives import is_archive, members
from ddprof.readers.files.streams import open_blocks


def exceeds(paths: Sequence[str], most_bytes: int) -> bool:
    """Whether the files unpack to more than `most_bytes` together; no more than that is unpacked, none of it kept.

    Raises NoUsableInput or OSError where a file cannot be opened.
    """
    seen = 0
    for size in (size for path in paths for size in _block_bytes(path)):
        seen += size
        if seen > most_bytes:
            return True
    return False


def _block_bytes(path: str) -> Iterator[int]:
    """Sizes of the unpacked blocks of a file; of an archive its own first, so that its list is known to be short."""
    yield from _sizes(path, None)
    if is_archive(path):
        for member, _ in members(path):
            yield from _sizes(path, member)


def _sizes(path: str, member: str | None) -> Iterator[int]:
    with open_blocks(path, member) as blocks:
        yield from (len(block) for block in blocks)
