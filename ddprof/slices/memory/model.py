"""A snapshot of PyTorch's caching allocator (`torch.cuda.memory._dump_snapshot`) as columns, and the results on it.

Sizes of blocks are the requested bytes, as in the allocator's events; rounding counts as reserved but not held.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddprof.tables import Column, Schema, Table


class Action(enum.IntEnum):
    """Action of the allocator."""

    OTHER = 0
    ALLOC = 1
    FREE_REQUESTED = 2  # the tensor is gone; other streams may still use its memory
    FREE_COMPLETED = 3
    SEGMENT_ALLOC = 4  # cudaMalloc
    SEGMENT_FREE = 5  # cudaFree
    SEGMENT_MAP = 6  # of expandable segments
    SEGMENT_UNMAP = 7
    OOM = 8


NO_STACK = -1

ALLOCATOR_EVENTS = Schema(
    "allocator_events",
    Column("action", "uint8", "Action"),
    Column("address", "int64", "of the block or segment; of an OOM the bytes that the device still had"),
    Column("size_bytes", "int64", "asked for"),
    Column("at_us", "int64", "unix time", nullable=True),
    Column("stack", "int64", "row of Snapshot.stacks; -1: none was recorded"),
    Column("told", "int64", "row of Snapshot.told: the category that the file states; -1: none"),
)

HELD_BLOCKS = Schema(
    "held_blocks",
    Column("address", "int64", "of the block"),
    Column("size_bytes", "int64", "asked for"),
    Column("stack", "int64", "row of Snapshot.stacks: where it was allocated; -1: none was recorded"),
)

SEGMENTS = Schema(
    "segments",
    Column("address", "int64", "of the segment"),
    Column("size_bytes", "int64", "reserved"),
    Column("is_expandable", "bool", "grows and shrinks by pages"),
)


@dataclass(frozen=True)
class CodeFrame:
    """One frame of a stack; `line` 0 where there is none (C++)."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class DeviceHistory:
    """One device: the allocator's events in order, and the bytes held and reserved after the last."""

    device: int
    events: Table
    blocks: Table
    segments: Table


@dataclass(frozen=True)
class Snapshot:
    """One snapshot file. `stacks`: innermost frame first. `settings`: of the allocator, as recorded."""

    path: str
    devices: tuple[DeviceHistory, ...]
    stacks: tuple[tuple[CodeFrame, ...], ...]
    told: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Share:
    """Bytes held at the peak for one purpose, and the number of blocks. `is_known`: the purpose is known."""

    category: str
    name: str
    how: str
    size_bytes: int
    blocks: int
    is_known: bool


@dataclass(frozen=True)
class Line:
    """Bytes that one line allocated and that were held at the peak. `category`: that of most of them."""

    frame: CodeFrame
    size_bytes: int
    blocks: int
    category: str


@dataclass(frozen=True)
class OutOfMemory:
    """A failed allocation: its time, the bytes requested, free on the device, held and reserved."""

    at_us: int | None
    asked_bytes: int
    device_free_bytes: int
    held_bytes: int
    reserved_bytes: int
    trapped_bytes: int | None
    frame: CodeFrame | None


@dataclass(frozen=True)
class MemoryCurve:
    """Memory over time; `at_us` counts from the first event (its number where no times were recorded)."""

    at_us: tuple[int, ...]
    held_bytes: tuple[int, ...]
    reserved_bytes: tuple[int, ...]


@dataclass(frozen=True)
class DeviceMemory:
    """One device at its peak. `at_us`: from the first event, None without times.

    `shares` and `lines` are largest first; the shares sum to `held_bytes`, `lines` and `lineless_bytes` too.
    `reserved_bytes` is at that moment, `most_reserved_bytes` at any. `trapped_bytes`: free pieces of segments in use at
    the peak, `empty_bytes`: segments with nothing in them; both None where segments grow by pages.
    """

    device: int
    events: int
    at_us: int | None
    span_us: int | None
    held_bytes: int
    reserved_bytes: int
    most_reserved_bytes: int
    shares: tuple[Share, ...]
    lines: tuple[Line, ...]
    lineless_bytes: int
    trapped_bytes: int | None
    empty_bytes: int | None
    out_of_memory: tuple[OutOfMemory, ...]
    curve: MemoryCurve
    advice: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def unknown_bytes(self) -> int:
        """Bytes held at the peak for unknown purposes."""
        return sum(share.size_bytes for share in self.shares if not share.is_known)


@dataclass(frozen=True)
class SnapshotMemory:
    """Memory of one snapshot file, device by device."""

    path: str
    devices: tuple[DeviceMemory, ...]
    is_expandable: bool
