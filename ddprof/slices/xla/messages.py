"""Planes of an XPlane profile, decoded by the `protobuf` package (the extra `xplane`).

The schema is public (openxla/xla, third_party/tsl/tsl/profiler/protobuf/xplane.proto); unused fields are omitted. It
has its own descriptor pool, so that TensorFlow's may be loaded too.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from ddprof.errors import NoUsableInput

_PLANE = b"\n"  # the tag of XSpace.planes: field 1, of a length
_LONGEST_VARINT = 10  # bytes
_MOST_PLANES = 1 << 12  # of one process: ten times the devices and tracers of any host
_INT64, _UINT64, _BYTES, _MESSAGE = 3, 4, 12, 11  # FieldDescriptorProto.Type
_ONE, _MANY = 1, 3  # FieldDescriptorProto.Label
_FIELDS: dict[str, tuple[tuple[str, int, int, int, str], ...]] = {
    "XStat": (
        ("metadata_id", 1, _INT64, _ONE, ""),
        ("uint64_value", 3, _UINT64, _ONE, ""),
        ("int64_value", 4, _INT64, _ONE, ""),
        ("str_value", 5, _BYTES, _ONE, ""),
        ("ref_value", 7, _UINT64, _ONE, ""),
    ),
    "XEvent": (
        ("metadata_id", 1, _INT64, _ONE, ""),
        ("offset_ps", 2, _INT64, _ONE, ""),
        ("duration_ps", 3, _INT64, _ONE, ""),
        ("stats", 4, _MESSAGE, _MANY, "XStat"),
    ),
    "XLine": (
        ("id", 1, _INT64, _ONE, ""),
        ("name", 2, _BYTES, _ONE, ""),
        ("timestamp_ns", 3, _INT64, _ONE, ""),
        ("events", 4, _MESSAGE, _MANY, "XEvent"),
        ("display_name", 11, _BYTES, _ONE, ""),
    ),
    "XMetadata": (("name", 2, _BYTES, _ONE, ""), ("display_name", 4, _BYTES, _ONE, "")),
    "XEntry": (("key", 1, _INT64, _ONE, ""), ("value", 2, _MESSAGE, _ONE, "XMetadata")),
    "XStatMetadata": (("name", 2, _BYTES, _ONE, ""),),
    "XStatEntry": (("key", 1, _INT64, _ONE, ""), ("value", 2, _MESSAGE, _ONE, "XStatMetadata")),
    "XPlane": (
        ("id", 1, _INT64, _ONE, ""),
        ("name", 2, _BYTES, _ONE, ""),
        ("lines", 3, _MESSAGE, _MANY, "XLine"),
        ("event_metadata", 4, _MESSAGE, _MANY, "XEntry"),
        ("stat_metadata", 5, _MESSAGE, _MANY, "XStatEntry"),
        ("stats", 6, _MESSAGE, _MANY, "XStat"),
    ),
}


def can_decode() -> bool:
    """True where the `protobuf` package is installed."""
    try:
        return find_spec("google.protobuf") is not None
    except ModuleNotFoundError:  # no package of that name space at all
        return False


def planes_of(content: bytes, label: str) -> tuple[list[Any], int]:
    """The planes of a profile, and the number of damaged ones. Raises NoUsableInput where there is none."""
    decode_error = importlib.import_module("google.protobuf.message").DecodeError
    plane_class = _messages()
    planes = []
    for part in _parts(content):
        try:
            planes.append(plane_class.FromString(part) if part is not None else None)
        except decode_error:
            planes.append(None)
    damaged = planes.count(None)
    whole = [plane for plane in planes if plane is not None]
    if not whole:
        raise NoUsableInput(f"{label}: an XPlane profile without a complete plane")
    return whole, damaged


def _parts(content: bytes) -> Iterator[bytes | None]:
    """The planes as bytes, one by one; ends with None at truncated or foreign content."""
    at = count = 0
    while at < len(content):
        count += 1
        tag, at = _varint(content, at)
        length, at = _varint(content, at)
        if tag is None or length is None or tag & 7 != 2 or at + length > len(content) or count > _MOST_PLANES:
            yield None
            return
        if tag == _PLANE[0]:
            yield content[at : at + length]
        at += length


def _varint(content: bytes, at: int) -> tuple[int | None, int]:
    value = 0
    for number, byte in enumerate(content[at : at + _LONGEST_VARINT]):
        value |= (byte & 127) << 7 * number
        if byte < 128:
            return value, at + number + 1
    return None, at


@lru_cache(maxsize=1)
def _messages() -> Any:
    """The class of XPlane. Texts are bytes, as they may not be UTF-8."""
    descriptor_pb2 = importlib.import_module("google.protobuf.descriptor_pb2")
    pool = importlib.import_module("google.protobuf.descriptor_pool").DescriptorPool()
    described = descriptor_pb2.FileDescriptorProto(name="ddprof_xplane.proto", package="ddprof", syntax="proto3")
    for message, fields in _FIELDS.items():
        one = described.message_type.add(name=message)
        for name, number, kind, label, of in fields:
            of_type = {"type_name": f".ddprof.{of}"} if of else {}
            one.field.add(name=name, number=number, type=kind, label=label, **of_type)
    pool.AddSerializedFile(described.SerializeToString())
    factory = importlib.import_module("google.protobuf.message_factory")
    return factory.GetMessageClass(pool.FindMessageTypeByName("ddprof.XPlane"))
