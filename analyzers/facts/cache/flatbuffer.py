"""Flatbuffers, written: as much of https://flatbuffers.dev/internals as the metadata of an Arrow file is made of.

A number is (format of struct, value), a text is a str, a table maps the position of a field in its schema to its value,
a list holds tables, and `Structs` holds structs of 8-byte alignment as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_OFFSET = struct.Struct("<I")
_WIDEST = 8  # bytes of the largest number; every table and struct starts at a multiple of it


@dataclass(frozen=True, eq=False)
class Structs:
    """`count` structs, already packed, each with an alignment of 8 bytes."""

    count: int
    content: bytes


def flatbuffer(root: Mapping[int, Any], places: dict[Structs, int] | None = None) -> bytes:
    """The buffer of a root table, its size a multiple of 8; `places` is told where the structs of each vector begin."""
    out = bytearray(_OFFSET.size)
    _OFFSET.pack_into(out, 0, _write(out, root, {} if places is None else places))
    _align(out, 0)
    return bytes(out)


def _write(out: bytearray, node: Any, places: dict[Structs, int]) -> int:
    """Appends a node and what it refers to; where it begins."""
    if isinstance(node, Mapping):
        return _write_table(out, node, places)
    if isinstance(node, Structs):
        _align(out, _OFFSET.size)  # their number goes before them
        places[node] = len(out) + _OFFSET.size
        out += _OFFSET.pack(node.count) + node.content
        return len(out) - len(node.content) - _OFFSET.size
    _align(out, 0)
    begin = len(out)
    if isinstance(node, str):
        text = node.encode()
        out += _OFFSET.pack(len(text)) + text + b"\0"
        return begin
    return _write_list(out, node, places)


def _write_list(out: bytearray, tables: Sequence[Any], places: dict[Structs, int]) -> int:
    begin = len(out)
    out += _OFFSET.pack(len(tables)) + bytes(_OFFSET.size * len(tables))
    for number, table in enumerate(tables, 1):
        at = begin + _OFFSET.size * number
        _OFFSET.pack_into(out, at, _write(out, table, places) - at)
    return begin


def _write_table(out: bytearray, fields: Mapping[int, Any], places: dict[Structs, int]) -> int:
    """The table behind its vtable, which says where each field lies in it (0: absent)."""
    offsets, size, referred = [0] * (max(fields, default=-1) + 1), struct.calcsize("<i"), []
    inline = bytearray(size)
    for slot, value in fields.items():
        form, number = value if isinstance(value, tuple) else ("<I", 0)
        width = struct.calcsize(form)
        inline += bytes(-len(inline) % width)
        offsets[slot] = len(inline)
        if not isinstance(value, tuple):
            referred.append((len(inline), value))
        inline += struct.pack(form, number)
    vtable = struct.pack(f"<{2 + len(offsets)}H", 4 + 2 * len(offsets), len(inline), *offsets)
    _align(out, len(vtable))
    begin = len(out) + len(vtable)
    struct.pack_into("<i", inline, 0, len(vtable))
    out += vtable + inline
    for at, value in referred:
        _OFFSET.pack_into(out, begin + at, _write(out, value, places) - begin - at)
    return begin


def _align(out: bytearray, ahead: int) -> None:
    """Pads so that what follows `ahead` more bytes is aligned."""
    out += bytes(-(len(out) + ahead) % _WIDEST)
