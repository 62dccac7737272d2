"""Files behind an fsspec URL: listed folder by folder, read by ranges, never copied to a disk."""

from __future__ import annotations

import io
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

from ddprof.untrusted.stores import RemoteFile, reasons, remote_file, store_at

Names = Callable[[str], list[str]]  # URLs that begin with a stem: `starting_with`, or as they have been listed

# Bytes of one request. A store answers the first byte of one after some 50 ms and then sends 50 to 100 MB/s: 4 MiB make
# the wait half of it, and it passes while the block before is parsed. What only looks at a file's first bytes asks for
# no more than these.
STREAM_BLOCK_BYTES = 4 << 20
HEAD_BLOCK_BYTES = 1 << 18
_LAST = chr(0x10FFFF)  # no name of a file goes on with it
_KEPT_BLOCKS = 3  # the one that is read, the next one, and the one before, which damage makes read again


def is_url(path: str) -> bool:
    """True where a path is in a store rather than on this machine."""
    return "://" in path


def open_remote(url: str, head_only: bool = False) -> IO[bytes]:
    """A file read by ranges; `head_only`: little beyond the first bytes is wanted. Raises OSError or ImportError."""
    with store_at(url) as (system, path):
        how: dict[str, Any] = {"block_size": HEAD_BLOCK_BYTES, "cache_type": "readahead"}
        if not head_only:
            options = {"maxblocks": _KEPT_BLOCKS}
            how = {"block_size": STREAM_BLOCK_BYTES, "cache_type": "background", "cache_options": options}
        return cast(IO[bytes], _Reading(system.open(path, "rb", **how)))


def walk_remote(url: str) -> Iterator[RemoteFile]:
    """The files at or below a URL in a stable order, one folder listed after the other; hidden ones are left out.

    Raises OSError (FileNotFoundError where there is none) or ImportError.
    """
    with store_at(url) as (system, root):
        system.invalidate_cache()  # a run may have grown since this process listed it
        yield from _files_below(system, root.rstrip("/"))


def starting_with(stem: str) -> list[str]:
    """URLs of the files of one folder that begin with `stem`, sorted. Raises OSError or ImportError."""
    with store_at(stem) as (system, path):
        folder, _, name = path.rpartition("/")
        files = system.find(folder, prefix=name)  # one request, where the store knows prefixes
        return sorted(str(system.unstrip_protocol(file)) for file in files if str(file).startswith(path))


class Listed:
    """Files of a store's folders; each folder is listed once. Raises OSError or ImportError."""

    def __init__(self) -> None:
        self._folders: dict[str, tuple[list[str], dict[str, str]]] = {}  # names, sorted, and the stamp of each

    def stamp(self, url: str) -> str | None:
        """A token that changes with a file's content ("": not known to the store); None where there is no file."""
        return self._folder(url)[1].get(url)

    def starting_with(self, stem: str) -> list[str]:
        """Files whose paths begin with `stem`, as in the function of that name."""
        names = self._folder(stem)[0]
        return names[bisect_left(names, stem) : bisect_left(names, stem + _LAST)]

    def _folder(self, url: str) -> tuple[list[str], dict[str, str]]:
        folder = url[: url.rindex("/") + 1]
        if folder not in self._folders:
            with store_at(folder) as (system, path):  # most drivers remember what `walk_remote` has listed
                files = [remote_file(system, i) for i in system.ls(path, detail=True) if i["type"] != "directory"]
            self._folders[folder] = sorted(file.url for file in files), {file.url: file.stamp for file in files}
        return self._folders[folder]


def _files_below(system: Any, path: str) -> Iterator[RemoteFile]:
    """The files below a URL; not by the driver's own `walk`, which takes an unlistable folder for an empty one."""
    folders = []
    for info in sorted(system.ls(path, detail=True), key=lambda info: str(info["name"])):
        at = str(info["name"])
        name = at.rstrip("/").rpartition("/")[2]
        if info["type"] == "directory" or at.endswith("/"):  # a store's folder may be an empty object of that name
            folders += [at.rstrip("/")] if not name.startswith((".", "__")) and at.rstrip("/") != path else []
        elif not name.startswith(".") or at == path:
            yield remote_file(system, info)
    for folder in folders:
        yield from _files_below(system, folder)


class _Reading(io.RawIOBase):
    """A driver's open file, whose failures are OSErrors."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, fewer or none at the end."""
        with reasons():
            return bytes(self._opened.read(size))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset."""
        with reasons():
            return int(self._opened.seek(offset, whence))

    def tell(self) -> int:
        """Offset of the next byte."""
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
            with reasons():
                self._opened.close()
        super().close()
