"""Results on a memory snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from ddprof.slices.memory.snapshot import CodeFrame


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
