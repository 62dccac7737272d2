"""What a snapshot supports advising: bytes alone. It has no steps, so no time is promised for anything."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.slices.memory.model import OutOfMemory
from ddprof.units import format_bytes

# The pages of an expandable segment of large blocks, kLargeBuffer of c10/core/AllocatorConfig.h: what lies free within
# one such page stays lost with them too.
PAGE_BYTES = 20 << 20
_SETTING = "expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF"


def advice(apart: tuple[int, int] | None, failures: Sequence[OutOfMemory]) -> tuple[str, ...]:
    """Sentences; none where nothing is supported. `apart`: (trapped, empty) bytes at the peak, None if not known."""
    saved = next((failure for failure in failures if _would_fit(failure)), None)
    if saved is not None and saved.trapped_bytes is not None:
        return (
            f"{_SETTING}: the allocation of {format_bytes(saved.asked_bytes)} failed while "
            f"{format_bytes(saved.trapped_bytes)} lay free in pieces between blocks, beside "
            f"{format_bytes(saved.device_free_bytes)} of the device.",
        )
    if failures:
        worst = max(failures, key=lambda failure: failure.asked_bytes)
        return (
            f"The allocation of {format_bytes(worst.asked_bytes)} would not have fitted without fragmentation either: "
            "hold less (smaller batch, activation checkpointing, sharding).",
        )
    if apart is not None and apart[0] > PAGE_BYTES:
        return (
            f"{_SETTING} could give back up to {format_bytes(apart[0])} of what is reserved at the peak: it lay free "
            "in pieces between blocks.",
        )
    return ()


def _would_fit(failure: OutOfMemory) -> bool:
    """Whether what lay in pieces, joined with what the device had, is as much as was asked for."""
    if failure.trapped_bytes is None:
        return False
    usable = failure.trapped_bytes - PAGE_BYTES + failure.device_free_bytes
    return failure.device_free_bytes < failure.asked_bytes <= usable
