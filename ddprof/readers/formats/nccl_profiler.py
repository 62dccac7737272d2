"""Logs of NCCL's profiler plugin (JSON lines).

Collectives with their kernels and sequence numbers; one RankTrace per rank.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache
from itertools import compress
from typing import Any

import numpy as np
from msgspec import Struct

from ddprof.errors import NoUsableInput
from ddprof.model import Device, HealthNote, Identity, Kind, ProcessGroup, RankTrace
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.columns.finish import finish
from ddprof.readers.columns.groups import number_in_communicator
from ddprof.readers.format import Format, Sample
from ddprof.readers.json_text.load import load_records
from ddprof.readers.json_text.trace_event import as_identifier, as_text
from ddprof.readers.numbers import near_each_other, one_int, one_rank, to_ns
from ddprof.readers.source import Source
from ddprof.tables import NULL

_RECORD = re.compile(
    rb'"(?:recordType|type)"\s*:\s*"(?:ProfilerLifecycle|event|state)".{0,400}"(?:commId|eventAddr|gpuUuid)"', re.S
)
_MANGLED = re.compile(r"^_Z(\d{1,6})")
_MOST_ELEMENTS = 2**58  # of a message: more fit no memory
_ELEMENT_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}


class _Record(Struct, frozen=True):
    """One timed record: its kind, writer, start and end (ns), and details."""

    kind: str
    rank: int | None
    launch: int | str | float | None
    start_ns: int
    dur_ns: int
    values: dict[str, Any]
    details: dict[str, Any]


class _Log(Struct, frozen=True):
    """The records of each rank by start, and notes on the file's defects."""

    by_rank: dict[int, list[_Record]]
    notes: tuple[HealthNote, ...]


@lru_cache(maxsize=2)
def load(path: str, member: str | None, state: tuple[int, str]) -> _Log:
    """A log, cached because each of its ranks is read separately.

    Kernels state no rank: they go to the rank whose launch has the same correlation (their GPU's name may be that of
    another). Records without a start and a stop are state changes.
    """
    values, notes = load_records(path, member)
    records = [record for value in values if (record := _record(value)) is not None]
    near = near_each_other(np.array([r.start_ns for r in records], np.int64))
    if not near.all():
        issue = f"{path}: {int((~near).sum())} records without a usable timestamp"
        notes = [*notes, HealthNote(issue, "left out")]
    rank_of = {r.launch: r.rank for r in records if r.launch is not None and r.rank is not None}
    by_rank: dict[int, list[_Record]] = defaultdict(list)
    for record in compress(records, near.tolist()):
        rank = rank_of.get(record.launch or 0) if record.rank is None else record.rank
        if rank is not None:
            by_rank[rank].append(record)
    for its in by_rank.values():
        its.sort(key=lambda r: r.start_ns)
    return _Log(dict(by_rank), tuple(notes))


def _record(value: dict[str, Any]) -> _Record | None:
    start, stop, details = (value.get(name) for name in ("start", "stop", "details"))
    if not isinstance(start, dict) or not isinstance(stop, dict):
        return None
    start_ns, end_ns = to_ns([start.get("ts"), stop.get("ts")]).tolist()
    return _Record(
        kind=as_text(value.get("type")) or "",
        rank=one_rank(value.get("rank")),
        launch=as_identifier(value.get("extCorrId")),
        start_ns=start_ns,
        dur_ns=end_ns - start_ns if NULL not in (start_ns, end_ns) else NULL,
        values={**value, "pid": start.get("pid")},
        details=details if isinstance(details, dict) else {},
    )


def rank_parts(source: Source) -> list[str]:
    """The ranks in a log ("rank 3")."""
    ranks = sorted(load(source.path, source.member, source.state).by_rank)
    if not ranks:
        raise NoUsableInput(f"{source.label}: an NCCL profiler log without ranks")
    return [f"rank {rank}" for rank in ranks]


def read_nccl_profiler(source: Source) -> RankTrace:
    """One rank of a log; `source.part` is "rank N", the first one where it is None."""
    log = load(source.path, source.member, source.state)
    by_rank = log.by_rank
    part = source.part or rank_parts(source)[0]
    rank = int(part.split()[-1])
    records = by_rank[rank]
    columns = EventColumns()
    kernels = [r for r in records if r.kind == "KERNEL"]
    calls = [r for r in records if r.kind == "ncclProfileColl"]
    device = one_int(kernels[0].values.get("deviceId")) if kernels else NULL
    timed = "KERNEL" if kernels else "ncclProfileColl"
    all_timed = [r for theirs in by_rank.values() for r in theirs if r.kind == timed]
    if all_timed:  # one step from the first to the last: the program outside communication is unknown
        first, last = min(r.start_ns for r in all_timed), max(r.start_ns + max(r.dur_ns, 0) for r in all_timed)
        columns.mark_steps("log", np.array([first]), np.array([last]))
    _kernels(columns, kernels, calls, device, _world_size(records))
    identity = Identity(
        rank=rank,
        source="content",
        world_size=_world_size(records),
        pid=next((p for r in records if (p := one_int(r.values["pid"])) != NULL), None),
        backend="nccl",
        local_device=device if device != NULL else None,
    )
    notes: list[HealthNote] = []
    if rank == min(by_rank):  # once per file
        notes += log.notes
        issue = f"{source.path}: an NCCL profiler log holds communication only"
        notes.append(HealthNote(issue, "its window is one step; computation cannot be judged", "info"))
    return finish(source, columns, identity, Device("cuda"), notes, top={"records": "communication"})


def _call_name(record: _Record) -> str:
    function = as_text(record.details.get("func"))
    return f"nccl{function}" if function else record.kind.removeprefix("ncclProfile")


def _kernels(
    columns: EventColumns, kernels: list[_Record], calls: list[_Record], device: int, world: int | None
) -> None:
    """Kernels with the arguments of their collectives, in order. Without kernels, the collectives themselves."""
    timed = kernels or calls
    start, dur = (np.array(column, np.int64) for column in ([r.start_ns for r in timed], [r.dur_ns for r in timed]))
    names = [_demangled(as_text(r.values.get("name")) or _call_name(r)) for r in timed]
    track = ("device", "nccl")
    ids = np.array([one_int(r.launch) for r in timed], np.int64)
    first = columns.append(Kind.KERNEL, names, [track] * len(timed), start, dur, ids)
    columns.name_track(*track, "nccl", device if device != NULL else 0, 0)
    if len(kernels) not in (0, len(calls)):
        return  # kernels cannot be paired with collectives by order
    for row, call in enumerate(calls, first):
        details = call.details
        dtype = as_text(details.get("dtype")) or ""
        digits, count = re.search(r"(\d+)", dtype), one_int(details.get("count"))
        width = _ELEMENT_BYTES.get(digits[1]) if digits else None
        size = count * width if width and 0 <= count < _MOST_ELEMENTS else NULL
        ranks = tuple(range(world)) if world else ()
        group = ProcessGroup(as_text(call.values.get("commId")) or "", "", ranks, world, "nccl")
        op = as_text(details.get("func")) or ""
        seq = number_in_communicator(op, one_int(details.get("seq")))
        columns.arguments.add_collective(row, op, group, seq, (size, NULL), dtype.removeprefix("nccl"))


def _world_size(records: list[_Record]) -> int | None:
    return max((size for r in records if (size := one_rank(r.details.get("nranks")))), default=None)


def _demangled(name: str) -> str:
    match = _MANGLED.match(name)
    return name[match.end() : match.end() + int(match[1])] if match else name


def _recognise(sample: Sample) -> bool:
    return sample.is_object and sample.has(_RECORD, (b'"commId"', b'"eventAddr"', b'"gpuUuid"'))


FORMAT = Format("nccl_profiler", "an NCCL profiler log", _recognise, read_nccl_profiler, rank_parts)
