"""Steps in a memory-mapped file: what survives SIGKILL, a segmentation fault or a hang.

The kernel keeps the pages of a dead process, so the step before death is on disk whatever killed it. Writing is one
`struct.pack_into`; there is no lock and no system call on the step path.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddprof.capture.steps import Step

MAGIC = b"DDPROFR1"
HEADER_BYTES = 4096
_RECORD = struct.Struct("<9q")  # the fields of steps.Step in order
_COUNTS = struct.Struct("<8sqqqq")  # magic, capacity, records ever written, heartbeat_ns, open phase
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
        _COUNTS.pack_into(self._map, 0, MAGIC, capacity, 0, 0, 0)

    def write(self, step: Step) -> None:
        """Append one closed step; the oldest is overwritten when the ring is full."""
        slot = self._written % self._capacity
        _RECORD.pack_into(self._map, HEADER_BYTES + slot * _RECORD.size, *step)
        self._written += 1
        _COUNTS.pack_into(self._map, 0, MAGIC, self._capacity, self._written, step.end_ns, 0)

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
    with path.open("rb") as stream:
        header = stream.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES or header[: len(MAGIC)] != MAGIC:
            raise ValueError(f"{path.name}: not a ddprof step ring")
        _, capacity, written, _, _ = _COUNTS.unpack_from(header, 0)
        whole = HEADER_BYTES + capacity * _RECORD.size
        if capacity <= 0 or written < 0 or os.fstat(stream.fileno()).st_size < whole:
            raise ValueError(f"{path.name}: the step ring is cut short")
        (length,) = struct.unpack_from("<q", header, _IDENTITY_AT)
        identity = json.loads(header[_IDENTITY_AT + 8 : _IDENTITY_AT + 8 + length])
        kept = min(written, capacity) if last is None else min(written, capacity, last)
        steps = []
        for slot in range(written - kept, written):
            stream.seek(HEADER_BYTES + (slot % capacity) * _RECORD.size)
            steps.append(_step(stream.read(_RECORD.size)))
    return RingContent(identity, tuple(steps), written)


def _step(record: bytes) -> Step:
    *numbers, profiled = _RECORD.unpack(record)
    return Step._make([*numbers, bool(profiled)])
