"""The facts cache: places that keep facts (a folder, a shared store), and facts as a file."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeAlias, get_type_hints

import msgspec
import numpy as np

from ddprof.analyzers.facts.model import TABLES, RankFacts
from ddprof.tables import Table
from ddprof.untrusted.regular_files import open_regular
from ddprof.untrusted.stores import AT_ONCE, RemoteFile, remote_file, store_at

Chunk = bytes | memoryview  # of a content
MAX_ENTRY_BYTES = 1 << 30  # the facts of a rank are some MB
# Two thousand ranks of 256k events; ccache keeps as much (https://ccache.dev/manual/latest.html, max_size).
MOST_BYTES = 5 << 30
LONGEST_WRITE_S = 3600  # of one entry; what is older was left by a process that was killed
# `.arrow`: of earlier versions, which nobody reads any more.
ENTRY, _PART = re.compile(r"[0-9a-f]{20}\.(?:facts|arrow)"), re.compile(r"\.[0-9a-f]{20}\.[0-9a-f]{16}\.part")


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

    def save(self, key: str, chunks: Iterable[Chunk]) -> None:
        """Keep a content atomically, by a temporary file and a rename. Raises OSError."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        aside = os.path.join(self.path, f".{key}.{secrets.token_hex(8)}.part")
        try:
            with open(aside, "xb", buffering=0) as file:
                for chunk in chunks:
                    file.write(chunk)
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
        excess_bytes = sum(size for _, size, _ in entries) - self.most_bytes
        for _, size, path in sorted(entries):
            if excess_bytes <= 0:
                return
            with suppress(OSError):
                os.unlink(path)
            excess_bytes -= size

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


# Facts encoded as a cache file and decoded; content that differs from what was written is rejected.
#
# A file is a JSON head (everything but tables, and the byte size of each column), the columns, each aligned to 8 bytes,
# and a checksum. numpy maps them in place. pyarrow.ipc would cost each process that reads traces 26 MB and 27 ms (three
# imports, 2026-11-24).

_ALIGNMENT = 8
_SEAL_DIGITS = 32
_COLUMNS = [(name, column.name, column.dtype) for name, schema in TABLES.items() for column in schema.columns]


_FIELDS = [(name, kind) for name, kind in get_type_hints(RankFacts).items() if name not in TABLES]
# Everything of the facts that is not a table; `sizes`: bytes of each column of the tables.
_Head = msgspec.defstruct("_Head", [("sizes", tuple[int, ...]), *_FIELDS])


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_Head)  # 5 ms, which an analysis without kept facts need not wait for


def encode(facts: RankFacts, key: str) -> list[Chunk]:
    """Chunks of the cache file under `key`. Raises ValueError where a text of the facts cannot be encoded."""
    columns = [_bytes_of(getattr(facts, table)[name], dtype) for table, name, dtype in _COLUMNS]
    fields = {field: _plain(getattr(facts, field)) for field, _ in _FIELDS}
    head = msgspec.json.encode(_Head(sizes=tuple(map(len, columns)), **fields), enc_hook=str)
    chunks: list[Chunk] = [len(head).to_bytes(_ALIGNMENT, "little")]
    for part in (head, *columns):
        chunks += [part, bytes(-len(part) % _ALIGNMENT)]
    return [*chunks, _seal(key, chunks)]


def decode(content: bytes, key: str) -> RankFacts | None:
    """The facts in `content` if `encode` made it under this key, else None."""
    sealed = memoryview(content)[:-_SEAL_DIGITS]
    if content[-_SEAL_DIGITS:] != _seal(key, [sealed]):
        return None
    at, size = _ALIGNMENT, int.from_bytes(sealed[:_ALIGNMENT], "little")
    try:
        head = _decoder().decode(sealed[at : at + size])
    except msgspec.MsgspecError:
        return None
    values: dict[str, Any] = {field: getattr(head, field) for field, _ in _FIELDS}
    columns: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
    for (table, name, dtype), column_size in zip(_COLUMNS, head.sizes, strict=True):
        at, size = at + size + -size % _ALIGNMENT, column_size
        columns[table][name] = _values_of(sealed[at : at + size], dtype)
    values |= {table: Table(TABLES[table], arrays) for table, arrays in columns.items()}
    return RankFacts(**values)


def _bytes_of(values: Any, dtype: str) -> Chunk:
    if dtype == "str":
        return msgspec.json.encode(list(values))
    return np.ascontiguousarray(values, dtype).data.cast("B") if len(values) else b""


def _values_of(content: memoryview, dtype: str) -> Any:
    return np.array(msgspec.json.decode(content), object) if dtype == "str" else np.frombuffer(content, dtype)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _seal(key: str, chunks: Iterable[Chunk]) -> bytes:
    """Checksum of content and key, against disk errors; about 1 GB/s."""
    digest = hashlib.blake2b(key.encode(), digest_size=_SEAL_DIGITS // 2)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest().encode()


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

    def save(self, key: str, chunks: Iterable[Chunk]) -> None:
        """Keep a content. Raises OSError or ImportError."""
        content = b"".join(chunks)
        with store_at(self._at(f"{key}.facts")) as (system, path):
            system.pipe_file(path, content)

    def prune(self) -> None:
        """Remove the oldest contents by time of writing, as a store does not record reads."""
        with suppress(OSError, ImportError):
            entries = self._entries()
            excess_bytes = sum(entry.size_bytes for entry in entries) - self.most_bytes
            doomed = []
            for entry in sorted(entries, key=lambda entry: (entry.written_s, entry.url)):
                if excess_bytes <= 0:
                    break
                doomed.append(entry)
                excess_bytes -= entry.size_bytes
            if doomed:
                with ThreadPoolExecutor(self.at_once) as pool:
                    list(pool.map(_remove, doomed))

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


def _remove(entry: RemoteFile) -> None:
    with suppress(OSError, ImportError), store_at(entry.url) as (system, path):
        system.rm_file(path)
