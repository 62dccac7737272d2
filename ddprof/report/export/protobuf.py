"""Perfetto's own format, the part that an export needs: trace packets, written field by field.

Field numbers are those of protos/perfetto/trace in Perfetto's repository (trace_packet, track_event, track_descriptor,
interned_data, debug_annotation); they never change there. Only varints, fixed64 and length-delimited fields occur.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import numpy as np

from ddprof.tables import Array

BEGIN, END, INSTANT = 1, 2, 3  # TrackEvent.Type
# Added to every time: they are unsigned, and with it each is a varint of eight bytes (52 days from zero either way).
ZERO_NS = 1 << 52
_STAMP_BYTES = 8
_NEEDS_STATE, _CLEARED = 2, 1  # sequence_flags
_EXPLICIT = 3  # order of a track's children: by their rank


def varint(value: int) -> bytes:
    """An unsigned integer as a varint: seven bits per byte, lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A varint field."""
    return varint(field << 3) + varint(value)


def message(field: int, content: bytes) -> bytes:
    """A field of bytes, text or another message."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """A text field; characters that UTF-8 cannot encode are replaced."""
    return message(field, value.encode("utf-8", "replace"))


def stamps(times_ns: Array) -> list[bytes]:
    """The times as varints."""
    shifted = (times_ns.astype(np.int64) + ZERO_NS).astype(np.uint64)
    parts = [(shifted >> np.uint64(7 * at)) & np.uint64(0x7F) for at in range(_STAMP_BYTES)]
    rows = np.stack(parts, axis=1).astype(np.uint8)
    rows[:, :-1] |= 0x80
    # The last byte is never zero, which numpy would take off the end.
    packed: list[bytes] = np.ascontiguousarray(rows).view(f"S{_STAMP_BYTES}")[:, 0].tolist()
    return packed


def around(sequence: int, event: bytes) -> tuple[bytes, bytes]:
    """Bytes before and after the time stamp of a track event's packet."""
    tail = number(10, sequence) + number(13, _NEEDS_STATE) + message(11, event)
    return b"\x0a" + varint(1 + _STAMP_BYTES + len(tail)) + b"\x40", tail


def track_event(kind: int, track: int, name: int | None = None, category: int | None = None) -> bytes:
    """A track event with interned name and category."""
    event = number(9, kind) + number(11, track)
    event += number(10, name) if name is not None else b""
    return event + (number(3, category) if category is not None else b"")


def named_event(kind: int, track: int, name: str, details: Mapping[str, str]) -> bytes:
    """A track event that carries its name and the details shown when it is clicked."""
    notes = b"".join(message(4, text(10, key) + text(6, value)) for key, value in details.items())
    return number(9, kind) + number(11, track) + text(23, name) + notes


def flow_event(track: int, name: str, flow: int, ends: bool) -> bytes:
    """An instant at which an arrow begins or ends."""
    arrow = varint((48 if ends else 47) << 3 | 1) + struct.pack("<Q", flow)
    return number(9, INSTANT) + number(11, track) + text(23, name) + arrow


def packet(sequence: int, content: bytes) -> bytes:
    """A packet without a time."""
    return message(1, content + number(10, sequence))


def state(sequence: int, names: Iterable[str], categories: Iterable[str]) -> bytes:
    """The packet that begins a sequence: its names by their numbers, from 1."""
    interned = b"".join(message(1, number(1, at) + text(2, name)) for at, name in enumerate(categories, 1))
    interned += b"".join(message(2, number(1, at) + text(2, name)) for at, name in enumerate(names, 1))
    return packet(sequence, number(13, _CLEARED) + message(12, interned))


def process_track(sequence: int, uuid: int, pid: int, name: str) -> bytes:
    """The track of a process, whose children are in the order of their ranks."""
    process = number(1, pid) + text(6, name)
    return packet(sequence, message(60, number(1, uuid) + message(3, process) + number(11, _EXPLICIT)))


def child_track(sequence: int, uuid: int, parent: int, name: str, rank: int) -> bytes:
    """A track below another."""
    content = number(1, uuid) + text(2, name) + number(5, parent) + number(12, rank)
    return packet(sequence, message(60, content))
