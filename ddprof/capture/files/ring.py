"""Steps in a memory-mapped file, which survives SIGKILL, a segmentation fault or a hang.

The kernel writes the pages of a dead process to disk, so the file ends with the last closed step whatever killed the
process. Writing takes no lock and no system call. `steps/native/step_log.h` writes the same records.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddprof.capture.files.step import Step

MAGIC = b"DDPROFR2"
HEADER_BYTES = 4096
_RECORD = struct.Struct("<10q")  # number of records written so far, this one included; then the fields of Step
_HEADER = struct.Struct("<8sq")  # magic, capacity; written once, so that a step touches one page instead of two
_IDENTITY_AT = 64
CAPACITY = 1280


class StepRing:
    """The writer's side. Raises OSError where the file cannot be made in full (then there is no ring)."""

    def __init__(self, path: Path, identity: dict[str, Any], capacity: int = CAPACITY) -> None:
        self.path = path
        size = HEADER_BYTES + capacity * _RECORD.size
        encoded = json.dumps(identity).encode()
        if len(encoded) > HEADER_BYTES - _IDENTITY_AT - 8:
            raise ValueError("the identity does not fit the ring's header")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            # Every block is claimed now: writing to a hole of a full disk would kill the job with SIGBUS.
            os.posix_fallocate(descriptor, 0, size)
            self._map = mmap.mmap(descriptor, size)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        self._capacity = capacity
        self._written = 0
        struct.pack_into("<q", self._map, _IDENTITY_AT, len(encoded))
        self._map[_IDENTITY_AT + 8 : _IDENTITY_AT + 8 + len(encoded)] = encoded
        _HEADER.pack_into(self._map, 0, MAGIC, capacity)

    @property
    def place(self) -> tuple[bytes, int, int]:
        """For the writer in C: path of the file, offset of the first record (bytes), number of records that fit."""
        return os.fsencode(self.path), HEADER_BYTES, self._capacity

    def write(self, step: Step) -> None:
        """Append one closed step; the oldest is overwritten when the ring is full."""
        written = self._written
        self._written = written + 1
        _RECORD.pack_into(self._map, HEADER_BYTES + written % self._capacity * _RECORD.size, written + 1, *step)

    def close(self) -> None:
        """Unmap; the file stays."""
        self._map.close()


@dataclass(frozen=True)
class RingContent:
    """What a ring file holds: who wrote it, the steps kept (oldest first), and how many were ever written."""

    identity: dict[str, Any]
    steps: tuple[Step, ...]
    written: int


def read_ring(path: Path, last: int | None = None) -> RingContent:
    """Read a ring, also while its writer runs; only the `last` steps where that is enough.

    Raises OSError, or ValueError on a file that is not a whole ring.
    """
    data = path.read_bytes()
    if len(data) < HEADER_BYTES or data[: len(MAGIC)] != MAGIC:
        raise ValueError(f"{path.name}: not a ddprof step ring")
    _, capacity = _HEADER.unpack_from(data, 0)
    if capacity <= 0 or len(data) < HEADER_BYTES + capacity * _RECORD.size:
        raise ValueError(f"{path.name}: the step ring is cut short")
    (length,) = struct.unpack_from("<q", data, _IDENTITY_AT)
    identity = json.loads(data[_IDENTITY_AT + 8 : _IDENTITY_AT + 8 + length])
    records = [r for r in _RECORD.iter_unpack(data[HEADER_BYTES : HEADER_BYTES + capacity * _RECORD.size]) if r[0] > 0]
    records.sort()
    kept = records if last is None else records[-last:]
    return RingContent(identity, tuple(_step(record) for record in kept), records[-1][0] if records else 0)


def _step(record: tuple[int, ...]) -> Step:
    _, *numbers, profiled = record
    return Step._make([*numbers, bool(profiled)])
