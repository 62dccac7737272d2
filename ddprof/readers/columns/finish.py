"""The last step of every reader but Kineto's: grown columns to a RankTrace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddprof.model import Device, HealthNote, Identity, RankTrace
from ddprof.readers.columns.assemble import assemble
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.source import Source


def finish(
    source: Source,
    columns: EventColumns,
    identity: Identity,
    device: Device,
    health: Sequence[HealthNote] = (),
    base_time_ns: int | None = None,
    top: Mapping[str, Any] | None = None,
) -> RankTrace:
    """The trace of one rank of a format without companions."""
    built = assemble(columns, base_time_ns or 0, source.label)
    notes = [*health, *built.health]
    if not len(built.tables["events"]):
        notes.append(HealthNote(f"{source.label}: no events", "this rank cannot be analyzed", "error"))
    return RankTrace(
        identity=identity,
        device=device,
        path=source.label,
        format=source.format,
        has_base_time=base_time_ns is not None,
        strings=built.strings,
        process_groups=tuple(columns.arguments.groups.groups),
        top={**(top or {}), "categories": dict(columns.categories)},
        health=tuple(notes),
        **built.tables,
    )
