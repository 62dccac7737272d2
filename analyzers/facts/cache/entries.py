"""Facts as the content of a kept file, and back. What is not exactly what was written is not believed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from ddprof.analyzers.facts.cache.arrow_file import SEAL_DIGITS, TEXT, ArrowFile, Chunk
from ddprof.analyzers.facts.model import TABLES, RankFacts
from ddprof.model import Device, HealthNote, Identity, ProcessGroup
from ddprof.sidecar import Sidecar
from ddprof.tables import Table


class _Meta(msgspec.Struct):
    """What of the facts is no table."""

    identity: Identity
    device: Device
    path: str
    format: str
    has_base_time: bool
    strings: tuple[str, ...]
    step_source: str
    is_device_rank: bool
    main_thread: int | None
    process_groups: tuple[ProcessGroup, ...]
    memory: dict[str, Any]
    counts: dict[str, int]
    torn_steps: tuple[int, ...]
    sidecar: Sidecar
    top: dict[str, Any]
    health: tuple[HealthNote, ...]


_DECODER = msgspec.json.Decoder(_Meta)


@lru_cache(maxsize=1)
def _layout() -> ArrowFile:
    columns = [(f"{name}.{column.name}", column.dtype) for name, schema in TABLES.items() for column in schema.columns]
    return ArrowFile([("facts", TEXT), *columns])


def encode(facts: RankFacts, key: str) -> list[Chunk]:
    """What is kept under a key. Raises ValueError where a text of the facts cannot be written."""
    meta = _Meta(**{field: _plain(getattr(facts, field)) for field in _Meta.__struct_fields__})
    text = msgspec.json.encode(meta, enc_hook=str).decode()
    tables = (getattr(facts, name) for name in TABLES)
    chunks = _layout().chunks([text, *(values for table in tables for values in table.columns.values())])
    return [*chunks, _layout().tail(sum(map(len, chunks)), _seal(key, chunks))]


def decode(content: bytes, key: str) -> RankFacts | None:
    """The facts that `encode` made this content of under this key; None where it did not."""
    layout = _layout()
    size = len(content) - layout.tail_bytes
    sealed = memoryview(content)[: max(size, 0)]
    if size <= 0 or content[size:] != layout.tail(size, _seal(key, [sealed])):
        return None
    try:
        text, *columns = layout.read(content)
        meta = _DECODER.decode(text)
    except (ValueError, msgspec.MsgspecError):
        return None
    values: dict[str, Any] = {field: getattr(meta, field) for field in _Meta.__struct_fields__}
    at = iter(columns)
    for name, schema in TABLES.items():
        arrays = {c.name: np.array(next(at), object) if c.dtype == "str" else next(at) for c in schema.columns}
        values[name] = Table(schema, arrays)
    return RankFacts(**values)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _seal(key: str, chunks: Iterable[Chunk]) -> str:
    """Of a content under its key: a disk that errs must not change a report. A gigabyte a second."""
    digest = hashlib.blake2b(key.encode(), digest_size=SEAL_DIGITS // 2)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
