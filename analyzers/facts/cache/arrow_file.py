"""Columns as an Arrow IPC file of one row, written and read with numpy alone.

Columns of tables of any length share the one row: each is a list. pyarrow reads such a file (a test does), but is not
imported here: it costs every process that reads traces 27 MB (benchmarks/README.md).

https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format; tables as in Schema.fbs, Message.fbs and File.fbs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ddprof.analyzers.facts.cache.flatbuffer import Structs, flatbuffer
from ddprof.tables import Array

Chunk = bytes | memoryview
TEXT = "text"  # dtype of a column that is one text; "str": of one that is a list of texts
SEAL_DIGITS = 32

_MAGIC, _MARK, _END = b"ARROW1", struct.pack("<i", -1), struct.pack("<ii", -1, 0)
_ALIGNMENT = 8
_V5 = ("<h", 4)  # MetadataVersion
_SCHEMA, _RECORD_BATCH = 1, 3  # MessageHeader
_UTF8, _LIST = ("<B", 5), ("<B", 12)  # Type
_NUMBERS: Mapping[str, tuple[tuple[str, int], dict[int, Any]]] = {  # (Type, its table) by numpy dtype
    "int64": (("<B", 2), {0: ("<i", 64), 1: ("<?", 1)}),
    "int32": (("<B", 2), {0: ("<i", 32), 1: ("<?", 1)}),
    "uint8": (("<B", 2), {0: ("<i", 8), 1: ("<?", 0)}),
    "bool": (("<B", 2), {0: ("<i", 8), 1: ("<?", 0)}),  # as a byte each: Arrow's own are bits
    "float64": (("<B", 3), {0: ("<h", 2)}),
}
_BUFFERS = {TEXT: 3, "str": 5}  # of a column; of numbers 4


class ArrowFile:
    """The layout of all files with these columns: name and dtype (of numpy, TEXT or "str")."""

    def __init__(self, columns: Sequence[tuple[str, str]]) -> None:
        self._dtypes = [dtype for _, dtype in columns]
        schema = {1: [_field(name, dtype) for name, dtype in columns]}
        self._head = _MAGIC.ljust(_ALIGNMENT, b"\0") + _message(_SCHEMA, schema, 0)
        nodes = sum(1 if dtype == TEXT else 2 for dtype in self._dtypes)
        buffers = sum(_BUFFERS.get(dtype, 4) for dtype in self._dtypes)
        self._batch_bytes = len(_batch(np.zeros((nodes, 2), "<i8"), np.zeros((buffers, 2), "<i8"), 0))
        block, places = Structs(1, bytes(24)), dict[Structs, int]()
        self._footer = flatbuffer({0: _V5, 1: schema, 3: block, 4: [{0: "seal", 1: "0" * SEAL_DIGITS}]}, places)
        self._block_at, self._seal_at = places[block], self._footer.index(b"0" * SEAL_DIGITS)
        self.tail_bytes = len(self._footer) + 4 + len(_MAGIC)

    def chunks(self, values: Iterable[Any]) -> list[Chunk]:
        """All of a file but its tail. Values: for each column a text, an array, or a list of texts."""
        nodes: list[tuple[int, int]] = []
        buffers: list[Chunk] = []
        for dtype, value in zip(self._dtypes, values, strict=True):
            parts = _buffers(dtype, value)
            nodes += [(1, 0)] if dtype == TEXT else [(1, 0), (len(value), 0)]
            buffers += parts
        sizes = np.array([len(buffer) for buffer in buffers], "<i8")
        padded = sizes + -sizes % _ALIGNMENT
        ends = np.cumsum(padded)
        batch = _batch(np.array(nodes, "<i8"), np.column_stack((ends - padded, sizes)), int(ends[-1]))
        body = [part for buffer in buffers for part in (buffer, bytes(-len(buffer) % _ALIGNMENT)) if len(part)]
        return [self._head, batch, *body, _END]

    def tail(self, size_bytes: int, seal: str) -> bytes:
        """What ends a file whose chunks have this size, with the digest that it carries."""
        footer = bytearray(self._footer)
        body_bytes = size_bytes - len(self._head) - self._batch_bytes - len(_END)
        struct.pack_into("<qi4xq", footer, self._block_at, len(self._head), self._batch_bytes, body_bytes)
        footer[self._seal_at : self._seal_at + SEAL_DIGITS] = seal.encode()
        return bytes(footer) + struct.pack("<i", len(footer)) + _MAGIC

    def read(self, content: bytes) -> list[Any]:
        """The values that `chunks` was given, of a file with a seal that is right; arrays are views of `content`."""
        at = len(self._head) + self._batch_bytes
        found: list[Any] = []
        for dtype in self._dtypes:
            count = int(np.frombuffer(content, "<i4", 2, at)[1])
            at += 8
            if dtype == TEXT:
                found.append(content[at : at + count].decode())
                at += _padded(count)
            elif dtype == "str":
                ends = np.frombuffer(content, "<i4", count + 1, at)
                at += _padded(ends.nbytes)
                found.append([content[at + begin : at + end].decode() for begin, end in pairwise(ends.tolist())])
                at += _padded(int(ends[-1]))
            else:
                found.append(np.frombuffer(content, dtype, count, at))
                at += _padded(found[-1].nbytes)
        return found


def _buffers(dtype: str, value: Any) -> list[Chunk]:
    """The buffers of a column in the order of the format; nothing is null, so there is no validity."""
    if dtype == TEXT:
        text = value.encode()
        return [b"", struct.pack("<ii", 0, len(text)), text]
    outer = [b"", struct.pack("<ii", 0, len(value)), b""]
    if dtype != "str":
        return [*outer, np.ascontiguousarray(value, dtype).data.cast("B") if len(value) else b""]
    texts = [text.encode() for text in value]
    ends = np.array([0, *accumulate(map(len, texts))], "<i4")
    return [*outer, ends.data.cast("B"), b"".join(texts)]


def _padded(size: int) -> int:
    return size + -size % _ALIGNMENT


def _field(name: str, dtype: str) -> dict[int, Any]:
    """The Field of a column."""
    if dtype == TEXT:
        return {0: name, 2: _UTF8, 3: {}, 5: []}
    kind, details = (_UTF8, {}) if dtype == "str" else _NUMBERS[dtype]
    return {0: name, 2: _LIST, 3: {}, 5: [{0: "item", 2: kind, 3: details, 5: []}]}


def _batch(nodes: Array, buffers: Array, body_bytes: int) -> bytes:
    """The header of the record batch: (length, nulls) of each node, (begin, bytes) of each buffer."""
    parts = {
        0: ("<q", 1),
        1: Structs(len(nodes), nodes.astype("<i8").tobytes()),
        2: Structs(len(buffers), buffers.astype("<i8").tobytes()),
    }
    return _message(_RECORD_BATCH, parts, body_bytes)


def _message(kind: int, header: Mapping[int, Any], body_bytes: int) -> bytes:
    metadata = flatbuffer({0: _V5, 1: ("<B", kind), 2: header, 3: ("<q", body_bytes)})
    return _MARK + struct.pack("<i", len(metadata)) + metadata
