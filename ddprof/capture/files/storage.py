"""Reading and writing files of a run folder, atomically.

Others may have write access to a run folder, and files may be damaged: a name may be a link, a FIFO or a folder. Only
regular files of bounded size are read; written files are created anew, never through an existing link.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import get_ident
from typing import Any, BinaryIO

from ddprof.untrusted.regular_files import read_bounded
from ddprof.untrusted.secrets import masked, masked_data

# A sidecar holds some thousand steps and pauses, below 2 MB, and the gradients of a model, 60 bytes each: a million.
MAX_JSON_BYTES = 64 << 20


def names_in(folder: Path, suffix: str) -> list[Path]:
    """Files of a folder with the given ending, sorted; [] where the folder is gone or cannot be listed."""
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if name.endswith(suffix)]
    except OSError:
        return []


def text_of(path: str | Path) -> str:
    """The text of a file of the system's or the user's; "" where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):  # ValueError: no name of a file
        return ""


def count_in(path: Path) -> int | None:
    """The count that is all of a file of the kernel's; None where it cannot be read or is -1, which means unknown."""
    text = text_of(path).strip()
    return int(text) if text.isdigit() else None


def read_object(path: Path, limit_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """A JSON object from a file.

    Raises OSError where there is no such file, or none of that size; ValueError on anything else, naming the file.
    """
    return parse_object(read_bounded(path, limit_bytes), path.name)


def parse_object(text: bytes, name: str) -> dict[str, Any]:
    """A JSON object; NaN and infinities, which JSON lacks, become None. Raises ValueError, which names the file."""
    try:
        content = json.loads(text, parse_constant=lambda _: None)
    except RecursionError:
        raise ValueError(f"{name}: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{name}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{name}: not a JSON object")
    return content


def open_new(path: Path) -> int:
    """A descriptor of a new empty file, which replaces any file or link of that name. Raises OSError."""
    flags, mode = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _mode_in(path.parent)
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        path.unlink()
        return os.open(path, flags, mode)


def open_to_append(path: Path) -> int:
    """A descriptor that appends to a file, created if missing. Raises OSError, also on a link or an unread FIFO."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    return os.open(path, flags, _mode_in(path.parent))


def _mode_in(folder: Path) -> int:
    """The mode of a new file: readable by all who may enter its folder, writable by its owner alone, as truncating a
    mapped file kills the process that writes to it. Raises OSError.
    """
    return 0o600 | (folder.stat().st_mode & 0o044)


def write_json(path: Path, content: Any) -> None:
    """Write JSON without secrets to a temporary name and rename it. Raises OSError; then nothing is left behind."""
    write_bytes(path, json.dumps(masked_data(content), separators=(",", ":"), default=_plain).encode())


def _plain(value: Any) -> str:
    return masked(str(value))


def write_bytes(path: Path, content: bytes) -> None:
    """Write to a temporary name and rename it. Raises OSError; then nothing is left behind."""
    with replacing(path, path.with_name(f"{path.name}.{os.getpid()}.{get_ident()}.tmp")) as sink:
        sink.write(content)


@contextlib.contextmanager
def replacing(path: Path, temporary: Path) -> Iterator[BinaryIO]:
    """A new file `temporary`, renamed to `path` once it is whole. Raises OSError; then nothing is left behind."""
    try:
        with os.fdopen(open_new(temporary), "wb") as sink:
            yield sink
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def is_full(error: OSError) -> bool:
    """True for an error of a full disk or an exceeded quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _blocks(source: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: source.read(1 << 20), b"")


def compress(path: Path, blocks_of: Callable[[BinaryIO], Iterable[bytes]] = _blocks) -> Path:
    """Replace `path` by `path.gz`, of the blocks of its content, and return it. Raises OSError (full disk), and the
    plain file stays as it was.
    """
    target = path.with_name(path.name + ".gz")
    # Level 1: half the time of the default for a tenth more bytes, and this runs beside the training.
    with (
        path.open("rb") as source,
        replacing(target, path.with_name(f"{target.name}.{os.getpid()}.tmp")) as file,
        gzip.GzipFile(path.name, "wb", compresslevel=1, fileobj=file) as sink,
    ):
        sink.writelines(blocks_of(source))
    path.unlink()
    return target


def free_bytes(folder: Path) -> int | None:
    """Space that an ordinary user may still write; None where the file system does not tell."""
    try:
        stats = os.statvfs(folder)
    except OSError:
        return None
    return stats.f_bavail * stats.f_frsize


def new_map(path: Path, size_bytes: int) -> mmap.mmap:
    """A new file of this size, mapped whole for writing. Raises OSError, and leaves no file, where the disk is too
    small.

    Every block is claimed now: writing to a hole of a full disk would kill the job with SIGBUS.
    """
    descriptor = open_new(path)
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
        return mmap.mmap(descriptor, size_bytes)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
