"""Steps in a memory-mapped file, which survives SIGKILL, a segmentation fault or a hang.

The kernel writes the pages of a dead process to disk, so the file ends with the last closed step whatever killed the
process. Writing takes no lock and no system call. `steps/native/step_log.h` writes the same records.
"""

from __future__ import annotations

import json
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddprof.capture.files.layout import LARGEST_RANK
from ddprof.capture.files.step import Step
from ddprof.capture.files.storage import new_map, parse_object
from ddprof.untrusted.regular_files import read_bounded

MAGIC = b"DDPROFR3"
HEADER_BYTES = 4096
_RECORD = struct.Struct("<15q")  # number of records written so far, this one included; then the fields of Step
WRITTEN = struct.Struct(f"<q{_RECORD.size - 8}x")  # of a record: that number
_HEADER = struct.Struct("<8sq")  # magic, capacity; written once, so that a step touches one page instead of two
_IDENTITY_AT = 64
CAPACITY = 1280  # steps: some 100 KB
_MAX_BYTES = 16 << 20  # a hundred times the file of today's capacity
MAX_STEPS = 1 << 48  # a step of one microsecond for nine years
_LONGEST_NS = 1 << 53  # of a step: 104 days
_HOST = re.compile(r"[A-Za-z0-9_-]{1,255}")  # layout.host_label


class StepRing:
    """The writer's side. Raises OSError where the file cannot be made in full (then there is no ring)."""

    def __init__(self, path: Path, identity: dict[str, Any], capacity: int = CAPACITY) -> None:
        self.path = path
        size = HEADER_BYTES + capacity * _RECORD.size
        encoded = json.dumps(identity).encode()
        if len(encoded) > HEADER_BYTES - _IDENTITY_AT - 8:
            raise ValueError("the identity does not fit the ring's header")
        self._map = new_map(path, size)
        self._capacity = capacity
        self._written = 0
        struct.pack_into("<q", self._map, _IDENTITY_AT, len(encoded))
        self._map[_IDENTITY_AT + 8 : _IDENTITY_AT + 8 + len(encoded)] = encoded
        _HEADER.pack_into(self._map, 0, MAGIC, capacity)

    @property
    def place(self) -> tuple[bytes, int, int]:
        """Path of the file, offset of the first record (bytes), and capacity in records, for the writer in C."""
        return os.fsencode(self.path), HEADER_BYTES, self._capacity

    def write(self, step: Step) -> None:
        """Append one closed step; a full ring overwrites the oldest."""
        written = self._written
        self._written = written + 1
        _RECORD.pack_into(self._map, HEADER_BYTES + written % self._capacity * _RECORD.size, written + 1, *step)

    def close(self) -> None:
        """Unmap; the file stays."""
        self._map.close()


@dataclass(frozen=True)
class RingContent:
    """Contents of a ring file: its writer, the kept steps (oldest first), and the number of steps ever written.

    `started_ns` (unix) is None where it is not known; `identity` is the writer's description of itself; `damaged`
    counts impossible records.
    """

    rank: int
    host: str
    started_ns: int | None
    identity: dict[str, Any]
    steps: tuple[Step, ...]
    written: int
    damaged: int


def read_ring(path: Path, last: int | None = None) -> RingContent:
    """Read a ring, even while its writer runs; only the `last` steps where those suffice.

    Raises OSError, or ValueError on a file that is not a whole ring of a known rank; the message names the file.
    """
    data = read_bounded(path, _MAX_BYTES)
    if len(data) < HEADER_BYTES or data[: len(MAGIC)] != MAGIC:
        raise ValueError(f"{path.name}: not a ddprof step ring")
    _, capacity = _HEADER.unpack_from(data, 0)
    if capacity <= 0 or len(data) < HEADER_BYTES + capacity * _RECORD.size:
        raise ValueError(f"{path.name}: the step ring is truncated")
    (length,) = struct.unpack_from("<q", data, _IDENTITY_AT)
    start = _IDENTITY_AT + 8
    if not 0 <= length <= HEADER_BYTES - start:
        raise ValueError(f"{path.name}: the step ring names no rank")
    identity = parse_object(data[start : start + length], path.name)
    rank, host, started_ns = identity.get("rank"), identity.get("host"), identity.get("started_ns")
    if type(rank) is not int or not 0 <= rank <= LARGEST_RANK or not isinstance(host, str) or not _HOST.fullmatch(host):
        raise ValueError(f"{path.name}: the step ring names no rank")
    region = memoryview(data)[HEADER_BYTES : HEADER_BYTES + capacity * _RECORD.size]
    numbers = sorted((written, at) for at, (written,) in enumerate(WRITTEN.iter_unpack(region)) if written)
    newest = numbers if last is None else numbers[-last:]  # who watches a job looks every second
    records = [_RECORD.unpack_from(region, at * _RECORD.size) for _, at in newest]
    kept = [record for record in records if _is_step(record)]
    return RingContent(
        rank=rank,
        host=host,
        started_ns=started_ns if type(started_ns) is int and 0 <= started_ns < 1 << 63 else None,
        identity=identity,
        steps=tuple(Step._make([*numbers, bool(profiled)]) for _, *numbers, profiled in kept),
        written=kept[-1][0] if kept else 0,
        damaged=len(records) - len(kept),
    )


def _is_step(record: tuple[int, ...]) -> bool:
    """True where a rank can have written these numbers; a clock that was set back gives negative spans."""
    written, number, start_ns, end_ns, *phases_ns, profiled = record
    return (
        0 < written <= MAX_STEPS
        and 0 <= number < MAX_STEPS
        and min(start_ns, end_ns) >= 0
        and max(abs(span_ns) for span_ns in (end_ns - start_ns, *phases_ns)) <= _LONGEST_NS
        and profiled in (0, 1)
    )
