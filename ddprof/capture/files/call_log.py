"""The last collectives and messages that a rank's script called, in a memory-mapped file that survives SIGKILL.

As with the step ring, the kernel writes the pages of a dead process to disk: the file ends with the call that the rank
was inside. Writing takes no lock and no system call.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from ddprof.capture.files.storage import new_map
from ddprof.untrusted.regular_files import read_bounded

MAGIC = b"DDPROFC2"
CAPACITY = 256  # calls: some ten steps of a pipeline
_HEADER = struct.Struct("<8sq")  # magic, capacity
_HEADER_BYTES = 64
_RECORD_BYTES = 320
_TEXT_BYTES = 256
# Number of records written so far, this one included; number among the calls of its group; times of entering and
# leaving (0: inside, -1: by an exception); the other rank of a message (-1: none); line; bytes of text; the
# number that the group itself gives the collective (0: not known).
_RECORD = struct.Struct(f"<8q{_TEXT_BYTES}s")
_LEFT_AT = 24  # offset of the time of leaving in a record
_LEFT = struct.Struct("<q")
_SEPARATOR = "\x1f"
_MAX_BYTES = 1 << 20

Place = tuple[str, str, str, str, str, str]  # operation, group, dtype, size, file, function


def described(place: Place) -> bytes:
    """A calling place in the log's form."""
    return _SEPARATOR.join(place).encode("utf-8", "backslashreplace")[:_TEXT_BYTES]


class CallLog:
    """The writer's side. Raises OSError where the file cannot be made in full (then there is no log)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        size = _HEADER_BYTES + CAPACITY * _RECORD_BYTES
        self._map = new_map(path, size)
        self._written = 0
        _HEADER.pack_into(self._map, 0, MAGIC, CAPACITY)

    def enter(self, text: bytes, number: int, peer: int, line: int, now_ns: int, sequence: int = 0) -> int:
        """Record the start of a call that `described` encoded. Returns the token for `leave`."""
        written = self._written
        self._written = written + 1
        at = _HEADER_BYTES + written % CAPACITY * _RECORD_BYTES
        _RECORD.pack_into(self._map, at, written + 1, number, now_ns, 0, peer, line, len(text), sequence, text)
        return at

    def leave(self, at: int, now_ns: int) -> None:
        """Book the end of a call; `now_ns` -1: by an exception."""
        _LEFT.pack_into(self._map, at + _LEFT_AT, now_ns)

    def recent(self) -> list[dict[str, Any]]:
        """The calls kept, oldest first, in the sidecar's form."""
        return _calls(self._map[:])

    def close(self) -> None:
        """Unmap; the file stays."""
        self._map.close()


def read_calls(path: Path) -> list[dict[str, Any]]:
    """The calls of a log, oldest first. Raises OSError, or ValueError where it is not a log."""
    data = read_bounded(path, _MAX_BYTES)
    if len(data) < _HEADER_BYTES + CAPACITY * _RECORD_BYTES or data[: len(MAGIC)] != MAGIC:
        raise ValueError(f"{path.name}: not a log of calls")
    return _calls(data)


def _calls(data: bytes) -> list[dict[str, Any]]:
    numbered = []
    for at in range(_HEADER_BYTES, _HEADER_BYTES + CAPACITY * _RECORD_BYTES, _RECORD_BYTES):
        written, number, entered_ns, left_ns, peer, line, length, sequence, text = _RECORD.unpack_from(data, at)
        parts = text[: min(max(length, 0), _TEXT_BYTES)].decode("utf-8", "replace").split(_SEPARATOR)
        if written > 0 and len(parts) == len(Place.__args__):  # type: ignore[attr-defined]
            call = _call(parts, number, entered_ns, left_ns, peer, line)
            numbered.append((written, {**call, "sequence": sequence} if sequence > 0 else call))
    return [call for _, call in sorted(numbered, key=lambda pair: pair[0])]


def _call(parts: list[str], number: int, entered_ns: int, left_ns: int, peer: int, line: int) -> dict[str, Any]:
    op, group, dtype, size, file, function = parts
    sizes = [int(word) for word in size.split(",") if word.isdigit()]
    return {
        "group": group,
        "number": number,
        "op": op,
        "peer": peer if peer >= 0 else None,
        "size": sizes if size else None,  # [] of a scalar, whose size is "()"
        "dtype": dtype,
        "entered_ns": entered_ns,
        "done": left_ns > 0,
        "left_ns": left_ns if left_ns > 0 else None,
        "line": {"file": file, "line": line, "function": function},
    }
