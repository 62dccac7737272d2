"""Tracks of a trace for the DataLoader workers beside it: each batch that a worker fetched, as a span."""

from __future__ import annotations

from typing import Any

from ddprof.model import Kind
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.companions.workers import IN_PROCESS
from ddprof.tables import Array

_SPAN_NAME = "DataLoader worker: fetch"


def add_lanes(columns: EventColumns, fetches: Array, base_time_ns: int) -> None:
    """Append each fetch within the trace as a span on a track of its worker (`Kind.OTHER`: part of nobody's step)."""
    mine = fetches[fetches[:, 0] != IN_PROCESS]
    first, last = _span_of(columns)
    at = mine[:, 1] - base_time_ns
    keep = (at <= last) & (at + mine[:, 2] >= first)
    mine, at = mine[keep], at[keep]
    if not len(mine):
        return
    tracks: list[tuple[Any, Any]] = [("DataLoader", f"worker {worker}") for worker in mine[:, 0].tolist()]
    for track in tracks:
        columns.thread_names[track] = f"DataLoader {track[1]}"
    columns.append(Kind.OTHER, [_SPAN_NAME] * len(mine), tracks, at, mine[:, 2])


def _span_of(columns: EventColumns) -> tuple[int, int]:
    """First start and last end of what the trace holds, on its own base."""
    starts = [block[3] for block in columns.blocks if len(block[3])]
    if not starts:
        return 0, -1
    ends = [(block[3] + block[4]).max() for block in columns.blocks if len(block[3])]
    return int(min(start.min() for start in starts)), int(max(ends))
