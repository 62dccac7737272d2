"""TensorFlow's profile (XSpace) in Chrome's trace format, which recent versions of TensorFlow no longer write."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NOISE = "ThreadpoolListener::"  # one per closure of a thread pool: half of the events, of no use


def newest_profile(log_dir: Path) -> Path | None:
    """The `.xplane.pb` that the profiler wrote last below `log_dir`."""
    return max(log_dir.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime_ns, default=None)


def to_chrome(path: Path) -> dict[str, Any]:
    """The profile as a Chrome trace; times in us from its start, `profile_start_ns` (unix) beside them.

    Raises OSError, protobuf's DecodeError on a damaged file, ImportError where this TensorFlow does not bring the
    format's classes.
    """
    module = importlib.import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    space = module.XSpace()
    space.ParseFromString(path.read_bytes())
    events: list[dict[str, Any]] = []
    for plane in space.planes:
        events.extend(_plane(plane))
    return {
        "displayTimeUnit": "ns",
        "metadata": {"highres-ticks": True},
        "profile_start_ns": next((start for plane in space.planes if (start := _start_ns(plane))), None),
        "traceEvents": events,
    }


def _plane(plane: Any) -> Iterator[dict[str, Any]]:
    """A plane is a process ("/host:CPU", "/device:GPU:0"), a line one of its threads or streams."""
    if not plane.lines:
        return
    names = {key: metadata.name for key, metadata in plane.event_metadata.items()}
    yield {"ph": "M", "name": "process_name", "pid": plane.id, "args": {"name": plane.name}}
    for number, line in enumerate(plane.lines):
        thread = {"pid": plane.id, "tid": number}
        yield {"ph": "M", "name": "thread_name", **thread, "args": {"name": line.display_name or line.name}}
        for event in line.events:
            name = names.get(event.metadata_id, "?")
            if not name.startswith(_NOISE):
                start_us = line.timestamp_ns / 1e3 + event.offset_ps / 1e6
                yield {"ph": "X", "name": name, **thread, "ts": round(start_us, 3), "dur": event.duration_ps / 1e6}


def _start_ns(plane: Any) -> int | None:
    for stat in plane.stats:
        if plane.stat_metadata[stat.metadata_id].name == "profile_start_time":
            return int(stat.uint64_value or stat.int64_value) or None
    return None
