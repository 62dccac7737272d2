"""Facts encoded as a cache file and decoded; content that differs from what was written is rejected.

A file is a JSON head (everything but tables, and the byte size of each column), the columns, each aligned to 8 bytes,
and a checksum. numpy maps them in place. pyarrow.ipc would cost each process that reads traces 26 MB and 27 ms (three
imports, 2026-11-24).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, get_type_hints

import msgspec
import numpy as np

from ddprof.analyzers.facts.cache.place import Chunk
from ddprof.analyzers.facts.model import TABLES, RankFacts
from ddprof.tables import Table

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
