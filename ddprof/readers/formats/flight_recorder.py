"""Flight-recorder dumps without a trace.

Which collectives a rank issued, when, in which group; durations where NCCL knows them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ddprof.errors import NoUsableInput
from ddprof.model import Device, HealthNote, Identity, Kind, ProcessGroup, RankTrace
from ddprof.readers.columns.arguments import element_bytes
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.columns.finish import finish
from ddprof.readers.columns.numbers import one_int
from ddprof.readers.companions.flight_recorder import entries, load_dump
from ddprof.readers.files.names import rank_in_name
from ddprof.readers.files.safe_pickle import UnsafePickle
from ddprof.readers.files.streams import read_small
from ddprof.readers.format import Format, Sample
from ddprof.readers.source import Source
from ddprof.tables import NULL

_MARKS = re.compile(rb'"(?:pg_status|comm_lib_version|nccl_comm_state)"\s*:|"collective_seq_id"\s*:')
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_PICKLED_MARKS = (b"pg_config", b"collective_seq_id")


def read_dump(source: Source) -> RankTrace:
    """The collectives of one rank as events at the time they were issued.

    Raises NoUsableInput where the dump is unusable.
    """
    try:
        dump = load_dump(read_small(source.path, source.member))
    except (ValueError, UnsafePickle) as error:
        raise NoUsableInput(f"{source.label}: not a usable flight-recorder dump ({error})") from error
    issued = entries(dump)
    if not any(one_int(e.get("time_created_ns")) > 0 for e in issued):
        raise NoUsableInput(
            f"{source.label}: a flight-recorder dump of {len(issued)} collectives without times: "
            "who was late cannot be said"
        )
    columns = EventColumns()
    members = _members(dump)
    is_nccl = any(str(e.get("profiling_name", "")).startswith("nccl") for e in issued)
    timed = _fill(columns, issued, members)
    rank = rank_in_name(source.member or source.path)
    world = max((len(m) for m in members.values()), default=0)
    identity = Identity(
        rank, "file name" if rank is not None else "order", world or None, backend="nccl" if is_nccl else "gloo"
    )
    notes = [
        HealthNote(
            f"{source.label}: a flight-recorder dump holds collectives only", "computation cannot be judged", "info"
        )
    ]
    if issued and not timed:
        effect = "who issued late can be judged, how long collectives took cannot"
        notes.append(HealthNote(f"{source.label}: no start and completion times (backend without them)", effect))
    trace = finish(
        source, columns, identity, Device("cuda" if is_nccl else "cpu"), notes, 0, {"records": "communication"}
    )
    return replace(trace, flight_recorder=issued)


def _fill(columns: EventColumns, issued: Sequence[Mapping[str, Any]], members: dict[str, tuple[int, ...]]) -> int:
    """One event per collective; how many of them have a true duration."""
    entries = [e for e in issued if one_int(e.get("time_created_ns")) > 0]
    created = np.array([one_int(e.get("time_created_ns")) for e in entries], np.int64)
    started = np.array([one_int(e.get("time_discovered_started_ns")) for e in entries], np.int64)
    done = np.array([one_int(e.get("time_discovered_completed_ns")) for e in entries], np.int64)
    start = np.where(started > 0, started, created)  # 0 and null both stand for unknown
    timed = (done > 0) & (started > 0) & (done >= start)
    dur = np.where(timed, done - start, 0)
    names = [str(e.get("profiling_name") or "collective") for e in entries]
    track = ("host", "collectives")
    first = columns.append(Kind.ANNOTATION, names, [track] * len(entries), start, dur)
    columns.name_track(*track, "collectives")
    if len(entries) > 1:  # the recorded time, as one step: the dump has no others
        end = int((start + dur).max())
        window = np.array([end - int(start.min())], np.int64)
        columns.append(Kind.ANNOTATION, ["ProfilerStep#0"], [("host", "window")], start.min(keepdims=True), window)
    for at, entry in enumerate(entries):
        _record(columns, first + at, entry, names[at], members)
    columns.categories.update(names)
    return int(timed.sum())


def _record(
    columns: EventColumns, row: int, entry: Mapping[str, Any], name: str, members: dict[str, tuple[int, ...]]
) -> None:
    group = entry.get("process_group")
    label, description = (
        (str(group[0]), str(group[1])) if isinstance(group, list | tuple) and len(group) > 1 else ("", "")
    )
    ranks = members.get(label) or members.get("") or ()
    given, strings = columns.arguments, columns.strings
    number = given.groups.add(ProcessGroup(label, description, ranks, len(ranks) or None))
    is_message = bool(entry.get("is_p2p"))
    seq = one_int(entry.get("p2p_seq_id" if is_message else "collective_seq_id"))
    dtypes = entry.get("input_dtypes") or []
    given.collectives.append(
        (
            row,
            strings[name.split(":")[-1]],
            number,
            seq,
            _total_bytes(entry.get("input_sizes"), dtypes),
            _total_bytes(entry.get("output_sizes"), entry.get("output_dtypes") or []),
            strings[str(dtypes[0]) if dtypes else ""],
            len(ranks) or NULL,
            NULL,
            NULL,
        )
    )


def _total_bytes(sizes: Any, dtypes: Any) -> int:
    if not isinstance(sizes, list | tuple) or not sizes:
        return NULL
    total = 0
    for size, dtype in zip(sizes, dtypes, strict=False):
        width = element_bytes(str(dtype))
        if width is None or not isinstance(size, list | tuple):
            return NULL
        total += int(np.prod(size, dtype=np.int64)) * width
    return total


def _members(dump: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The ranks of each group of the dump's configuration."""
    config = dump.get("pg_config")
    result = {}
    for key, entry in config.items() if isinstance(config, dict) else ():
        ranks = entry.get("ranks") if isinstance(entry, dict) else None
        try:
            parsed = json.loads(ranks) if isinstance(ranks, str) else ranks
        except ValueError:
            continue
        if isinstance(parsed, list):
            result[str(key)] = tuple(r for r in parsed if isinstance(r, int))
    return result


def _recognise(sample: Sample) -> bool:
    if _PICKLE.match(sample.head):
        return any(mark in sample.head for mark in _PICKLED_MARKS)
    return sample.is_object and sample.has(_MARKS) and not sample.has_events


FORMAT = Format("flight_recorder", "a flight-recorder dump", _recognise, read_dump, is_run=False)
