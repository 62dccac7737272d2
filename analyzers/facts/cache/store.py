"""The facts cache in a shared store, so that a team reads each trace once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from ddprof.analyzers.facts.cache.place import ENTRY, MAX_ENTRY_BYTES, MOST_BYTES, Chunk
from ddprof.untrusted.stores import AT_ONCE, RemoteFile, remote_file, store_at


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


def _remove(entry: RemoteFile) -> None:
    with suppress(OSError, ImportError), store_at(entry.url) as (system, path):
        system.rm_file(path)
