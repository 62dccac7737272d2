"""How large files are once they are unpacked: a small archive can hold more than a disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddprof.readers.files.archives import ZIP_MAGIC_BYTES, is_zip, open_archive, shown_members
from ddprof.readers.files.opening import ARCHIVE_DAMAGE, one_line
from ddprof.readers.files.streams import open_raw
from ddprof.readers.files.tar_members import is_tar
from ddprof.readers.files.unpacking import ByteStream


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
    with open_raw(path) as raw:
        packed = is_zip(raw.read(ZIP_MAGIC_BYTES))
        raw.seek(0)
        for at, block in enumerate(ByteStream(raw, path)):
            packed |= not at and is_tar(block)
            yield len(block)
    if not packed:
        return
    try:
        with open_archive(path) as archive:
            for member, _ in shown_members(archive):
                with archive.open(member) as stored:
                    yield from (len(block) for block in ByteStream(stored, member))
    except ARCHIVE_DAMAGE as error:
        raise OSError(f"{path}: damaged archive ({one_line(error)})") from error
