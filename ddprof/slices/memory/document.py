"""What is said of snapshots -> its JSON document (docs/memory.md, schema "ddprof.memory/1"). Missing is null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ddprof.slices.memory.model import DeviceMemory, Line, OutOfMemory, Share, SnapshotMemory
from ddprof.slices.memory.snapshot import CodeFrame

SCHEMA = "ddprof.memory/1"


def memory_document(files: Sequence[SnapshotMemory]) -> dict[str, Any]:
    """Plain dicts, lists, strings, numbers and None."""
    return {
        "schema": SCHEMA,
        "snapshots": [
            {
                "path": file.path,
                "expandable_segments": file.is_expandable,
                "devices": [_device(device) for device in file.devices],
            }
            for file in files
        ],
    }


def _device(told: DeviceMemory) -> dict[str, Any]:
    return {
        "device": told.device,
        "events": told.events,
        "span_us": told.span_us,
        "peak": {
            "at_us": told.at_us,
            "allocated_bytes": told.held_bytes,
            "reserved_bytes": told.reserved_bytes,
            "fragmented_bytes": told.trapped_bytes,
            "cached_bytes": told.empty_bytes,
            "unknown_bytes": told.unknown_bytes,
            "categories": [_share(share) for share in told.shares],
            "lines": [_line(line) for line in told.lines],
            "other_lines_bytes": told.lineless_bytes,
        },
        "peak_reserved_bytes": told.most_reserved_bytes,
        "out_of_memory": [_failure(failure) for failure in told.out_of_memory],
        "curve": {
            "at_us": list(told.curve.at_us),
            "allocated_bytes": list(told.curve.held_bytes),
            "reserved_bytes": list(told.curve.reserved_bytes),
        },
        "advice": list(told.advice),
        "notes": list(told.notes),
    }


def _share(share: Share) -> dict[str, Any]:
    return {
        "category": share.category,
        "decided_by": share.how,
        "bytes": share.size_bytes,
        "blocks": share.blocks,
        "is_known": share.is_known,
    }


def _line(line: Line) -> dict[str, Any]:
    return {**_frame(line.frame), "bytes": line.size_bytes, "blocks": line.blocks, "mostly": line.category}


def _frame(frame: CodeFrame) -> dict[str, Any]:
    return {"file": frame.file or None, "line": frame.line or None, "function": frame.function}


def _failure(failure: OutOfMemory) -> dict[str, Any]:
    plain = asdict(failure)
    frame = plain.pop("frame")
    names = {"held_bytes": "allocated_bytes", "trapped_bytes": "fragmented_bytes"}
    renamed = {names.get(name, name): value for name, value in plain.items()}
    return {**renamed, "at_line": None if frame is None or failure.frame is None else _frame(failure.frame)}
