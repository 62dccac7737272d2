"""Flight-recorder dumps without a trace.

Which collectives a rank issued, when, in which group; durations where NCCL knows them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ddprof.errors import NoUsableInput
from ddprof.flight_recorder import Recorded
from ddprof.model import Device, HealthNote, Identity, Kind, ProcessGroup, RankTrace, element_bytes
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.columns.finish import finish
from ddprof.readers.files.names import rank_in_name
from ddprof.readers.files.safe_pickle import UnsafePickle
from ddprof.readers.files.streams import read_small
from ddprof.readers.format import Format, Sample
from ddprof.readers.side_files.lenient import load_dump, ranks_of, unfit_note
from ddprof.readers.source import Source
from ddprof.tables import NULL

_MARKS = re.compile(rb'"(?:pg_status|comm_lib_version|nccl_comm_state)"\s*:|"collective_seq_id"\s*:')
_WORDS = (b"pg_status", b"comm_lib_version", b"nccl_comm_state", b"collective_seq_id")
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
MAX_BYTES = 2**60  # of one collective: a million times the memory of a GPU
_PICKLED_MARKS = (b"pg_config", b"collective_seq_id")


def read_dump(source: Source) -> RankTrace:
    """The collectives of one rank as events at their issue times. Raises NoUsableInput where the dump is unusable."""
    try:
        dump, unfit = load_dump(read_small(source.path, source.member))
    except (ValueError, TypeError, UnsafePickle) as error:
        raise NoUsableInput(f"{source.label}: not a usable flight-recorder dump ({error})") from error
    issued = tuple(e for e in dump.entries if e.time_created_ns)
    if not issued:
        raise NoUsableInput(
            f"{source.label}: a flight-recorder dump of {len(dump.entries)} collectives without times: "
            "who was late cannot be said"
        )
    columns = EventColumns()
    # Without groups of invalid ranks.
    members = {name: ranks for name, group in dump.pg_config.items() if (ranks := ranks_of(group)) is not None}
    is_nccl = any((e.profiling_name or "").startswith("nccl") for e in issued)
    timed = _fill(columns, issued, members)
    rank = rank_in_name(source.member or source.path)
    world = max((len(m) for m in members.values()), default=0)
    source_of_rank = "file name" if rank is not None else "order"
    identity = Identity(rank, source_of_rank, world or None, backend="nccl" if is_nccl else "gloo")
    issue = f"{source.label}: a flight-recorder dump holds collectives only"
    notes = [HealthNote(issue, "computation cannot be judged", "info"), *unfit_note(source.label, unfit)]
    if len(issued) < len(dump.entries):
        issue = f"{source.label}: {len(dump.entries) - len(issued)} of {len(dump.entries)} collectives have no time"
        notes.append(HealthNote(issue, "left out"))
    if not timed:
        effect = "late ranks are judged, durations of collectives are not"
        notes.append(HealthNote(f"{source.label}: no start and completion times (backend without them)", effect))
    device, top = Device("cuda" if is_nccl else "cpu"), {"records": "communication"}
    return replace(finish(source, columns, identity, device, notes, 0, top), flight_recorder=issued)


def _fill(columns: EventColumns, issued: Sequence[Recorded], members: Mapping[str, tuple[int, ...]]) -> int:
    """Append one event per collective; returns the number with a true duration."""
    created = np.array([e.time_created_ns for e in issued], np.int64)
    started = np.array([e.time_discovered_started_ns or 0 for e in issued], np.int64)
    done = np.array([e.time_discovered_completed_ns or 0 for e in issued], np.int64)
    start = np.where(started > 0, started, created)
    timed = (done > 0) & (started > 0) & (done >= start)
    dur = np.where(timed, done - start, 0)
    names = [e.profiling_name or "collective" for e in issued]
    track = ("host", "collectives")
    first = columns.append(Kind.ANNOTATION, names, [track] * len(issued), start, dur)
    columns.name_track(*track, "collectives")
    if len(issued) > 1:  # the recorded time, as one step: the dump has no others
        end = int((start + dur).max())
        window = np.array([end - int(start.min())], np.int64)
        columns.append(Kind.ANNOTATION, ["ProfilerStep#0"], [("host", "window")], start.min(keepdims=True), window)
    for at, entry in enumerate(issued):
        _record(columns, first + at, entry, names[at], members)
    columns.categories.update(names)
    return int(timed.sum())


def _record(
    columns: EventColumns, row: int, entry: Recorded, name: str, members: Mapping[str, tuple[int, ...]]
) -> None:
    label, description = entry.process_group[:2] if len(entry.process_group) > 1 else ("", "")
    ranks = members.get(label) or members.get("") or ()
    group = ProcessGroup(label, description, ranks, len(ranks) or None)
    seq = entry.p2p_seq_id if entry.is_p2p else entry.collective_seq_id
    sent_bytes = _total_bytes(entry.input_sizes, entry.input_dtypes)
    sizes = (sent_bytes, _total_bytes(entry.output_sizes, entry.output_dtypes))
    dtype = entry.input_dtypes[0] if entry.input_dtypes else ""
    columns.arguments.add_collective(row, name.split(":")[-1], group, NULL if seq is None else seq, sizes, dtype)


def _total_bytes(sizes: Sequence[tuple[int, ...]], dtypes: Sequence[str]) -> int:
    """Size in bytes; NULL where it is not known, or larger than any memory."""
    if not sizes or len(dtypes) < len(sizes):
        return NULL
    total = 0
    for size, dtype in zip(sizes, dtypes, strict=False):
        width = element_bytes(dtype)
        if width is None:
            return NULL
        total += math.prod(size) * width
    return total if total <= MAX_BYTES else NULL


def _recognise(sample: Sample) -> bool:
    if _PICKLE.match(sample.head):
        return any(mark in sample.head for mark in _PICKLED_MARKS)
    return sample.is_object and sample.has(_MARKS, _WORDS) and not sample.has_events


FORMAT = Format("flight_recorder", "a flight-recorder dump", _recognise, read_dump, is_run=False)
