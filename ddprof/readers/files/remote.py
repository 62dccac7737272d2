"""Files behind an fsspec URL: listed folder by folder, read by ranges, never copied to a disk.

A store's driver raises whatever the libraries below it do; here all of it becomes an OSError that says the reason.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, cast

# Bytes of one request. A store answers the first byte of one after some 50 ms and then sends 50 to 100 MB/s: 4 MiB make
# the wait half of it, and it passes while the block before is parsed. What only looks at a file's first bytes asks for
# no more than these.
STREAM_BLOCK_BYTES = 4 << 20
HEAD_BLOCK_BYTES = 1 << 18
AT_ONCE = 10  # files asked for side by side: as many as botocore keeps connections for (max_pool_connections)
_KEPT_BLOCKS = 3  # the one that is read, the next one, and the one before, which damage makes read again


@dataclass(frozen=True)
class RemoteFile:
    """A file that a store lists: its whole URL, and its size in bytes."""

    url: str
    size_bytes: int


def is_url(path: str) -> bool:
    """Whether a path is of a store rather than of this machine."""
    return "://" in path


def open_remote(url: str, head_only: bool = False) -> IO[bytes]:
    """A file by ranges; `head_only`: little more than its first bytes is wanted. Raises OSError or ImportError."""
    with _reasons():
        import fsspec  # a tenth of the start-up time of an analysis, for those who read from elsewhere

        how: dict[str, Any] = {"block_size": HEAD_BLOCK_BYTES, "cache_type": "readahead"}
        if not head_only:
            options = {"maxblocks": _KEPT_BLOCKS}
            how = {"block_size": STREAM_BLOCK_BYTES, "cache_type": "background", "cache_options": options}
        system, path = fsspec.core.url_to_fs(url)
        return cast(IO[bytes], _Reading(system.open(path, "rb", **how)))


def walk_remote(url: str) -> Iterator[RemoteFile]:
    """The files at or below a URL in a stable order, one folder listed after the other; hidden ones are left out.

    Raises OSError (FileNotFoundError where there is none) or ImportError.
    """
    with _reasons():
        import fsspec

        system, root = fsspec.core.url_to_fs(url)
        system.invalidate_cache()  # a run may have grown since this process listed it
        yield from _files_below(system, root.rstrip("/"))


def starting_with(stem: str) -> list[str]:
    """URLs of the files of one folder that begin with `stem`, sorted. Raises OSError or ImportError."""
    with _reasons():
        import fsspec

        system, path = fsspec.core.url_to_fs(stem)
        folder, _, name = path.rpartition("/")
        files = system.find(folder, prefix=name)  # one request, where the store knows prefixes
        return sorted(str(system.unstrip_protocol(file)) for file in files if str(file).startswith(path))


def _files_below(system: Any, path: str) -> Iterator[RemoteFile]:
    """Not by the driver's own `walk`, for which a folder that it fails to list is an empty one."""
    folders = []
    for info in sorted(system.ls(path, detail=True), key=lambda info: str(info["name"])):
        at = str(info["name"])
        name = at.rstrip("/").rpartition("/")[2]
        if info["type"] == "directory" or at.endswith("/"):  # a store's folder may be an empty object of that name
            folders += [at.rstrip("/")] if not name.startswith((".", "__")) and at.rstrip("/") != path else []
        elif not name.startswith(".") or at == path:
            yield RemoteFile(str(system.unstrip_protocol(at)), int(info.get("size") or 0))
    for folder in folders:
        yield from _files_below(system, folder)


@contextmanager
def _reasons() -> Iterator[None]:
    try:
        yield
    except (OSError, ImportError):
        raise
    except Exception as error:
        raise OSError(_reason(error)) from error


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if "credential" in f"{type(error).__name__} {text}".lower():
        return f"{text.rstrip('.')} (the store's own environment variables and files give them)"
    return text


class _Reading(io.RawIOBase):
    """A driver's open file, whose failures are OSErrors."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, fewer or none at the end."""
        with _reasons():
            return bytes(self._opened.read(size))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """To an offset."""
        with _reasons():
            return int(self._opened.seek(offset, whence))

    def tell(self) -> int:
        """Where the next byte is read."""
        return int(self._opened.tell())

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always: by ranges."""
        return True

    def close(self) -> None:
        """Close the driver's file."""
        if not self.closed:
            with _reasons():
                self._opened.close()
        super().close()
