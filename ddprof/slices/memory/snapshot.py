"""A snapshot of PyTorch's caching allocator (`torch.cuda.memory._dump_snapshot`) as columns.

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
