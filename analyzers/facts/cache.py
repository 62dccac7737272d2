"""The facts cache: places that keep facts (a folder, a shared store), and facts as a file."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeAlias, get_type_hints

import msgspec
import numpy as np

from ddprof.analyzers.facts.model import TABLES, RankFacts
from ddprof.tables import Schema, Table
from ddprof.untrusted.regular_files import open_regular
from ddprof.untrusted.stores import AT_ONCE, RemoteFile, remote_file, store_at

MAX_ENTRY_BYTES = 1 << 30  # the facts of a rank are some MB
# Two thousand ranks of 256k events; ccache keeps as much (https://ccache.dev/manual/latest.html, max_size).
MOST_BYTES = 5 << 30
LONGEST_WRITE_S = 3600  # of one entry; what is older was left by a process that was killed
ENTRY, _PART = re.compile(r"[0-9a-f]{20}\.facts"), re.compile(r"\.[0-9a-f]{20}\.[0-9a-f]{16}\.part")


@dataclass(frozen=True)
class Folder:
    """One file per key in a folder, which is created on the first write; several processes may use it at once."""

    path: str
    most_bytes: int = MOST_BYTES
    at_once: ClassVar[int] = 1  # how many entries are asked for, or sent, side by side

    def load(self, key: str, believed: Collection[int]) -> bytes | None:
        """The content under a key, no longer than an entry may be; None where there is none or no believed user wrote
        it.
        """
        with suppress(OSError), open_regular(self._file(key)) as file:
            if os.fstat(file.fileno()).st_uid not in believed:
                return None
            content = file.read(MAX_ENTRY_BYTES)
            with suppress(OSError):  # another user's: its age counts from when it was written
                os.utime(file.fileno())
            return content
        return None

    def save(self, key: str, content: bytes) -> None:
        """Keep a content atomically, by a temporary file and a rename. Raises OSError."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        aside = os.path.join(self.path, f".{key}.{secrets.token_hex(8)}.part")
        try:
            with open(aside, "xb", buffering=0) as file:
                file.write(content)
            os.replace(aside, self._file(key))
        finally:
            with suppress(OSError):  # renamed, else of no use
                os.unlink(aside)

    def prune(self) -> None:
        """Remove the least recently used files and the leftovers of killed processes."""
        entries = []
        now_s = time.time()
        with suppress(OSError), os.scandir(self.path) as listing:
            for item in listing:
                with suppress(OSError):
                    status = item.stat(follow_symlinks=False)
                    if _PART.fullmatch(item.name) and now_s - status.st_mtime > LONGEST_WRITE_S:
                        os.unlink(item.path)
                    elif ENTRY.fullmatch(item.name):
                        entries.append((status.st_mtime_ns, status.st_size, item.path))
        for path in _oldest_beyond(self.most_bytes, entries):
            with suppress(OSError):
                os.unlink(path)

    def _file(self, key: str) -> str:
        return os.path.join(self.path, f"{key}.facts")


def users_folder() -> Folder | None:
    """`ddprof/facts` in the user's cache; None where it is not writable or is another user's folder or link."""
    stated = os.environ.get("XDG_CACHE_HOME", "")
    base = stated if os.path.isabs(stated) else os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.join(base, "ddprof", "facts")
    if not os.path.isabs(path) or not all(map(_is_ours, (os.path.dirname(path), path))):  # not absolute: no home
        return None
    with suppress(OSError):
        os.makedirs(path, mode=0o700, exist_ok=True)
        return Folder(path) if os.access(path, os.W_OK | os.X_OK) else None
    return None


def _is_ours(path: str) -> bool:
    """True where nobody else controls the path: it does not exist yet, or is this user's or root's folder or link."""
    try:
        status = os.lstat(path)
    except OSError:
        return True
    return status.st_uid in (0, os.getuid()) and (stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode))


# Facts as a cache file: one MessagePack object, in it the columns of each table as bytes or texts, and its checksum;
# content that differs from what was written is rejected. pyarrow.ipc would cost each process that reads traces 26 MB
# and 27 ms (three imports, 2026-11-24).

_SEAL_BYTES = 16
_COLUMNS = dict[str, bytes | list[str]]


@cache
def _kept() -> type[msgspec.Struct]:
    """The type of facts with plain columns."""
    kinds = {name: _COLUMNS if name in TABLES else kind for name, kind in get_type_hints(RankFacts).items()}
    return msgspec.defstruct("_Kept", [*kinds.items()])


@cache
def _decoder() -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(_kept())  # 7 ms, which an analysis without kept facts need not wait for


def encode(facts: RankFacts, key: str) -> bytes:
    """The cache file under `key`. Raises ValueError where a text or a number of the facts cannot be encoded."""
    kept = _kept()(**{name: _plain(getattr(facts, name)) for name in _kept().__struct_fields__})
    try:
        content = msgspec.msgpack.encode(kept, enc_hook=str)
    except OverflowError as error:  # beyond 64 bits, as a damaged header may say
        raise ValueError(str(error)) from error
    return content + _seal(key, content)


def decode(content: bytes, key: str) -> RankFacts | None:
    """The facts in `content` if `encode` made it under this key, else None."""
    sealed = memoryview(content)[:-_SEAL_BYTES]
    if content[-_SEAL_BYTES:] != _seal(key, sealed):
        return None
    try:
        values = msgspec.structs.asdict(_decoder().decode(sealed))
    except msgspec.MsgspecError:
        return None
    return RankFacts(**{**values, **{name: _table(schema, values[name]) for name, schema in TABLES.items()}})


def _plain(value: Any) -> Any:
    if isinstance(value, Table):
        return {name: list(of) if of.dtype == object else of.tobytes() for name, of in value.columns.items()}
    return dict(value) if isinstance(value, Mapping) else value


def _table(schema: Schema, kept: Mapping[str, Any]) -> Table:
    arrays = {}
    for column in schema.columns:
        values = kept[column.name]
        arrays[column.name] = np.array(values, object) if column.dtype == "str" else np.frombuffer(values, column.dtype)
    return Table(schema, arrays)


def _seal(key: str, content: bytes | memoryview) -> bytes:
    """Checksum of content and key, against disk errors; about 1 GB/s."""
    digest = hashlib.blake2b(key.encode(), digest_size=_SEAL_BYTES)
    digest.update(content)
    return digest.digest()


# The facts cache in a shared store, so that a team reads each trace once.


@dataclass(frozen=True)
class Store:
    """One object per key below an fsspec URL. Every writer is trusted, as a store names no owner.

    Buckets are never created. Object stores write atomically; in others an interrupted write lacks its checksum.
    """

    url: str
    most_bytes: int = MOST_BYTES
    at_once: ClassVar[int] = AT_ONCE

    def load(self, key: str, believed: Collection[int]) -> bytes | None:
        """The content under a key; None where there is none. Raises OSError or ImportError."""
        try:
            with store_at(self._at(f"{key}.facts")) as (system, path):
                return bytes(system.cat_file(path, start=0, end=MAX_ENTRY_BYTES))
        except FileNotFoundError:
            return None

    def save(self, key: str, content: bytes) -> None:
        """Keep a content. Raises OSError or ImportError."""
        with store_at(self._at(f"{key}.facts")) as (system, path):
            system.pipe_file(path, content)

    def prune(self) -> None:
        """Remove the oldest contents by time of writing, as a store does not record reads."""
        with suppress(OSError, ImportError):
            entries = [(entry.written_s, entry.size_bytes, entry.url) for entry in self._entries()]
            with ThreadPoolExecutor(self.at_once) as pool:
                list(pool.map(_remove, _oldest_beyond(self.most_bytes, entries)))

    def _entries(self) -> list[RemoteFile]:
        with store_at(self._at("")) as (system, root):
            system.invalidate_cache(root)
            files = [info for info in system.ls(root.rstrip("/"), detail=True) if info["type"] == "file"]
            return [
                remote_file(system, info) for info in files if ENTRY.fullmatch(str(info["name"]).rpartition("/")[2])
            ]

    def _at(self, name: str) -> str:
        return f"{self.url}{'' if self.url.endswith('/') else '/'}{name}"


Place: TypeAlias = Folder | Store


def _remove(url: str) -> None:
    with suppress(OSError, ImportError), store_at(url) as (system, path):
        system.rm_file(path)


def _oldest_beyond(most_bytes: int, entries: Iterable[tuple[float, int, str]]) -> Iterator[str]:
    """Places of the oldest entries, without which the others fit. `entries`: time, bytes, place."""
    held_bytes = 0
    for _, size_bytes, place in sorted(entries, reverse=True):
        held_bytes += size_bytes
        if held_bytes > most_bytes:
            yield place
