"""The flight recorder's dump of a rank, typed: the fields that the analysis uses, by their names in the file.

Missing is None or empty; times are unix nanoseconds. torch writes 0 as well as null for a time that it does not know.
`readers.formats.flight_recorder` parses the dumps.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from ddprof.sidecar import Count, Whole

# Annotated as one: a list of which one item is no such thing is left out whole, so that items stay at their places.
Dimensions: TypeAlias = Annotated[tuple[Count, ...], Meta(max_length=64)]  # as many as torch allows a tensor
Sizes: TypeAlias = Annotated[tuple[Dimensions, ...], Meta(max_length=2**16)]  # of the tensors of one collective
Names: TypeAlias = Annotated[tuple[str, ...], Meta(max_length=2**16)]


class RecordedFrame(Struct, frozen=True):
    """One frame of the Python stack that made a call."""

    name: str | None = None
    filename: str | None = None
    line: Count | None = None


class Recorded(Struct, frozen=True):
    """One collective or point-to-point operation. Of its end NCCL tells `state`, gloo only `retired`."""

    time_created_ns: Count | None = None
    time_discovered_started_ns: Count | None = None
    time_discovered_completed_ns: Count | None = None
    profiling_name: str | None = None
    process_group: Names = ()  # its name, and its description
    is_p2p: bool | None = None
    collective_seq_id: Whole | None = None
    p2p_seq_id: Whole | None = None
    input_sizes: Sizes = ()
    output_sizes: Sizes = ()
    input_dtypes: Names = ()
    output_dtypes: Names = ()
    record_id: Count | None = None
    state: str | None = None
    retired: bool | None = None
    timeout_ms: Count | None = None
    frames: Annotated[tuple[RecordedFrame, ...], Meta(max_length=1024)] = ()


class RecordedGroup(Struct, frozen=True):
    """One process group; `ranks` is a list or its text."""

    ranks: str | tuple[Whole, ...] | None = None
    desc: str | None = None


class Dump(Struct, frozen=True):
    """A whole dump, with its process groups by name."""

    entries: tuple[Recorded, ...] = ()
    pg_config: dict[str, RecordedGroup] = {}
