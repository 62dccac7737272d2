"""The last step of every reader but Kineto's: grown columns to a RankTrace, and the rank of a part of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ddprof.model import Device, HealthNote, Identity, RankTrace
from ddprof.readers.columns.assemble import assemble, is_unix_time
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.files.names import rank_in_name
from ddprof.readers.side_files.lenient import read_sidecar
from ddprof.readers.source import Source
from ddprof.sidecar import Sidecar


def finish(
    source: Source,
    columns: EventColumns,
    identity: Identity,
    device: Device,
    health: Sequence[HealthNote] = (),
    base_time_ns: int | None = None,
    top: Mapping[str, Any] | None = None,
) -> RankTrace:
    """The trace of one rank, with its sidecar where capture wrote it."""
    built = assemble(columns, base_time_ns or 0, source.label)
    sidecar, sidecar_notes = read_sidecar(source.sidecar_path)
    notes = [*health, *built.health, *sidecar_notes]
    if not len(built.tables["events"]):
        notes.append(HealthNote(f"{source.label}: no events", "this rank cannot be analyzed", "error"))
    return RankTrace(
        identity=_captured(identity, sidecar),
        device=device,
        path=source.label,
        format=source.format,
        has_base_time=base_time_ns is not None or is_unix_time(built.tables["events"]),
        strings=built.strings,
        process_groups=tuple(columns.arguments.groups.groups),
        sidecar=sidecar,
        top={**(top or {}), "categories": dict(columns.categories)},
        health=tuple(notes),
        **built.tables,
    )


def _captured(identity: Identity, sidecar: Sidecar) -> Identity:
    """The identity with values that the sidecar knows better than a file name."""
    if sidecar.rank is None:
        return identity
    world_size, host = identity.world_size or sidecar.world_size, identity.host or sidecar.host
    return replace(identity, rank=sidecar.rank, source="sidecar", world_size=world_size, host=host)


def part_identity(source: Source, parts: Sequence[str], **about: Any) -> Identity:
    """Identity of the part that `source` names, the first one where it names none: its place among the `parts`, and of
    an only one the rank in the file's name. `about`: further fields of Identity.
    """
    if len(parts) > 1:
        at = parts.index(source.part) if source.part in parts else 0
        return Identity(at, "content", len(parts), **about)
    named = rank_in_name(source.member or source.path)
    return Identity(named or 0, "order" if named is None else "file name", None, **about)
