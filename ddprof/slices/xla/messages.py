"""Planes of an XPlane profile, decoded by the `protobuf` package (the extra `xplane`).

The schema is public (openxla/xla, third_party/tsl/tsl/profiler/protobuf/xplane.proto); unused fields are omitted. It
has its own descriptor pool, so that TensorFlow's may be loaded too.
"""

from __future__ import annotations

import importlib
import re
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
_SCHEMA = """
message XStat { int64 metadata_id = 1; uint64 uint64_value = 3; int64 int64_value = 4; bytes str_value = 5;
                uint64 ref_value = 7; }
message XEvent { int64 metadata_id = 1; int64 offset_ps = 2; int64 duration_ps = 3; repeated XStat stats = 4; }
message XLine { int64 id = 1; bytes name = 2; int64 timestamp_ns = 3; repeated XEvent events = 4;
                bytes display_name = 11; }
message XMetadata { bytes name = 2; bytes display_name = 4; }
message XEntry { int64 key = 1; XMetadata value = 2; }
message XStatMetadata { bytes name = 2; }
message XStatEntry { int64 key = 1; XStatMetadata value = 2; }
message XPlane { int64 id = 1; bytes name = 2; repeated XLine lines = 3; repeated XEntry event_metadata = 4;
                 repeated XStatEntry stat_metadata = 5; repeated XStat stats = 6; }
"""
_FIELD = re.compile(r"(repeated )?(\w+) (\w+) = (\d+);")


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
    types = {"int64": _INT64, "uint64": _UINT64, "bytes": _BYTES}
    for name, fields in re.findall(r"message (\w+) \{(.*?)\}", _SCHEMA, re.DOTALL):
        message = described.message_type.add(name=name)
        for repeated, kind, field, number in _FIELD.findall(fields):
            of = {"type": types[kind]} if kind in types else {"type": _MESSAGE, "type_name": f".ddprof.{kind}"}
            message.field.add(name=field, number=int(number), label=_MANY if repeated else _ONE, **of)
    pool.AddSerializedFile(described.SerializeToString())
    factory = importlib.import_module("google.protobuf.message_factory")
    return factory.GetMessageClass(pool.FindMessageTypeByName("ddprof.XPlane"))
