"""A folder of input as a value: relative path -> content. Mutations take one and return another; `plant` writes it."""

import gzip
import io
import os
import socket
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True)
class Link:
    """A symbolic link; `target` may dangle, loop, or name a device."""

    target: str


@dataclass(frozen=True)
class Fifo:
    """A named pipe that nobody writes to: whoever opens it waits for ever."""


@dataclass(frozen=True)
class Socket:
    """A socket in the file system."""


@dataclass(frozen=True)
class Vanishing:
    """A file that is deleted just before it is opened for the `at`-th time (1: before anybody reads it)."""

    content: bytes
    at: int


@dataclass(frozen=True)
class Unreadable:
    """A folder (or, with content, a file) that its reader has no right to."""

    content: bytes | None = None


Entry: TypeAlias = bytes | Link | Fifo | Socket | Vanishing | Unreadable
Tree: TypeAlias = Mapping[str, Entry]

MOST_TEXT_BYTES = 64 << 20  # seeds unpack to a few megabytes
_GZIP = b"\x1f\x8b"


def plant(tree: Tree, folder: Path) -> dict[str, int]:
    """Write a tree below `folder`. Returns, by absolute path, at which opening a file is to vanish."""
    vanishing: dict[str, int] = {}
    locked: list[Path] = []
    for name, entry in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(entry, bytes):
            path.write_bytes(entry)
        elif isinstance(entry, Link):
            path.symlink_to(entry.target)
        elif isinstance(entry, Fifo):
            os.mkfifo(path)
        elif isinstance(entry, Socket):
            _bind(path)
        elif isinstance(entry, Vanishing):
            path.write_bytes(entry.content)
            vanishing[str(path)] = entry.at
        else:
            if entry.content is None:
                path.mkdir()
                (path / "inside.json").write_bytes(b"{}")
            else:
                path.write_bytes(entry.content)
            locked.append(path)
    for path in locked:
        path.chmod(0)
    return vanishing


def _bind(path: Path) -> None:
    """A socket is bound by a name of 108 bytes at most: by a short one in its folder, and then renamed."""
    here, short = os.open(path.parent, os.O_RDONLY), path.with_name(".socket")
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{here}/{short.name}")
        short.rename(path)
    finally:
        os.close(here)


def files(tree: Tree) -> Iterator[tuple[str, bytes]]:
    yield from ((name, entry) for name, entry in tree.items() if isinstance(entry, bytes))


def unpacked(content: bytes) -> bytes:
    """The text of a gzip file, or the content as it is where it is none (or is damaged, or a bomb)."""
    if not content.startswith(_GZIP):
        return content
    try:
        with gzip.open(io.BytesIO(content)) as packed:
            text = packed.read(MOST_TEXT_BYTES + 1)
    except (OSError, EOFError, zlib.error):
        return content
    return text if len(text) <= MOST_TEXT_BYTES else content


def packed_like(before: bytes, text: bytes) -> bytes:
    """`text` packed as `before` was; always the same bytes for the same text."""
    return gzip.compress(text, compresslevel=1, mtime=0) if before.startswith(_GZIP) else text


def without(tree: Tree, name: str) -> dict[str, Entry]:
    return {path: entry for path, entry in tree.items() if path != name}
