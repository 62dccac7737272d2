"""rocprof databases (rocpd, .rpd): HIP calls, kernels and copies of AMD devices; one RankTrace per device."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ddprof.errors import NoUsableInput
from ddprof.model import Device, HealthNote, Kind, RankTrace
from ddprof.readers.columns.assemble import DAY_NS
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.columns.finish import finish, part_identity
from ddprof.readers.columns.kinds import copy_name, device_kind
from ddprof.readers.files.sqlite_file import MAGIC, Database, open_database
from ddprof.readers.format import Format, Sample
from ddprof.readers.numbers import LARGEST_RANK, lengths_ns
from ddprof.readers.source import Source
from ddprof.tables import NULL, Array

LEAST_SHARE = 0.01  # of the work of a device's main process; a process with less of it is of another device
# What rpd_tracer itself does, between the calls of its own database (its createOverheadRecord).
_OWN = re.compile(r"^(?:rpdflush|hcc_activity_callback|\w+Table::writeRows)$")
_IS_DEVICE = "(typeof(gpuId) = 'integer' AND gpuId BETWEEN 0 AND ?)"


def device_parts(source: Source) -> list[str]:
    """The devices of a database ("device 2"). Raises NoUsableInput where no device ran anything."""
    with open_database(source) as database:
        if "rocpd_op" not in database.tables:
            raise NoUsableInput(f"{source.label}: a database without traces (no rocpd_op table)")
        rows = database.rows(f"SELECT DISTINCT gpuId FROM rocpd_op WHERE {_IS_DEVICE} ORDER BY gpuId", (LARGEST_RANK,))
    if not rows:
        raise NoUsableInput(
            f"{source.label}: no operation of a device was recorded: trace the process that runs the kernels"
        )
    return [f"device {gpu}" for (gpu,) in rows]


def read_rpd(source: Source) -> RankTrace:
    """One device of a database; `source.part` names it, the first one where it is None."""
    parts = device_parts(source)
    part = source.part or parts[0]
    gpu = int(part.split()[-1])
    columns = EventColumns()
    with open_database(source) as database:
        text = database.texts("rocpd_string", "id", "string")
        launched_by = database.integers("rocpd_api_ops", ("api_id", "op_id"))
        _operations(columns, database, text, gpu, launched_by)
        notes = _without_device(database, source.label) if part == parts[0] else []  # once per file
        pid = _calls(columns, database, text, None if len(parts) == 1 else gpu)
    identity = part_identity(source, parts, pid=pid, local_device=gpu)
    return finish(source, columns, identity, Device("rocm"), notes)


def _without_device(database: Database, label: str) -> list[HealthNote]:
    ((rows,),) = database.rows(f"SELECT count(*) FROM rocpd_op WHERE NOT ifnull({_IS_DEVICE}, 0)", (LARGEST_RANK,))
    return [HealthNote(f"{label}: {rows} operations that name no device", "left out")] if rows else []


def _operations(columns: EventColumns, database: Database, text: dict[int, str], gpu: int, links: Array) -> None:
    names = ("id", "queueId", "start", "end", "description_id", "opType_id")
    ids, queue, start, end, description, operation = database.integers("rocpd_op", names, "WHERE gpuId = ?", (gpu,))
    what = [text.get(d) or text.get(o, "") for d, o in zip(description.tolist(), operation.tolist(), strict=True)]
    kinds = np.array([_kind(text.get(o, ""), w) for o, w in zip(operation.tolist(), what, strict=True)], np.uint8)
    tracks: list[tuple[Any, Any]] = [(f"GPU{gpu}", q) for q in queue.tolist()]
    first = columns.append(
        kinds, [copy_name(w) for w in what], tracks, start, lengths_ns(start, end), _correlation(ids, links)
    )
    for track in set(tracks):
        columns.name_track(*track, f"queue {track[1]}", gpu, int(track[1]))
    size_of: dict[Any, Any] = {}
    if {"rocpd_api_ops", "rocpd_copyapi"} <= database.tables:
        size_of = dict(
            database.rows("SELECT o.op_id, c.size FROM rocpd_api_ops o JOIN rocpd_copyapi c ON c.api_ptr_id = o.api_id")
        )
    for at in np.flatnonzero((kinds == Kind.MEMCPY) | (kinds == Kind.MEMSET)).tolist():
        size = size_of.get(int(ids[at]))
        columns.arguments.copies.append((first + at, size if isinstance(size, int) and size >= 0 else NULL))


def _correlation(ids: Array, links: Array) -> Array:
    """The id of each operation's launching call, NULL where it is not recorded."""
    call_of = dict(zip(links[1].tolist(), links[0].tolist(), strict=True))
    return np.array([call_of.get(i, NULL) for i in ids.tolist()], np.int64)


def _calls(columns: EventColumns, database: Database, text: dict[int, str], gpu: int | None) -> int | None:
    """HIP calls: all of them, or those of the process that used the device."""
    where = "" if gpu is None else f"WHERE pid IN ({', '.join(map(str, _users(database, gpu)))})"
    names = ("id", "pid", "tid", "start", "end", "apiName_id")
    ids, pid, tid, start, end, name = database.integers("rocpd_api", names, where)
    tracks: list[tuple[Any, Any]] = list(zip(pid.tolist(), tid.tolist(), strict=True))
    called = [text.get(n, "") for n in name.tolist()]
    kinds = np.array([Kind.OVERHEAD if _OWN.search(call) else Kind.RUNTIME for call in called], np.uint8)
    columns.append(kinds, called, tracks, start, lengths_ns(start, end), ids)
    given = np.unique(pid[pid != NULL])
    return int(given[0]) if len(given) == 1 else None


def _users(database: Database, gpu: int) -> list[int]:
    """Processes that used a device, without those that ran hardly anything there, whose device is another one."""
    if not {"rocpd_api", "rocpd_api_ops"} <= database.tables:
        return []
    length = f'CASE WHEN o."end" - o."start" BETWEEN 0 AND {DAY_NS} THEN o."end" - o."start" END'
    given = database.rows(
        f"SELECT a.pid, TOTAL({length}) FROM rocpd_api a JOIN rocpd_api_ops l ON l.api_id = a.id "
        "JOIN rocpd_op o ON o.id = l.op_id WHERE o.gpuId = ? AND typeof(a.pid) = 'integer' GROUP BY 1",
        (gpu,),
    )
    most = max((ns for _, ns in given), default=0.0)
    return [pid for pid, ns in given if ns >= LEAST_SHARE * most]


def _kind(operation: str, name: str) -> int:
    if operation.startswith("Copy") or operation.startswith("Memcpy"):
        return Kind.MEMCPY
    if operation.startswith(("Fill", "Memset")):
        return Kind.MEMSET
    return device_kind(name)


def _recognise(sample: Sample) -> bool:
    return sample.head.startswith(MAGIC) and b"rocpd" in sample.head


FORMAT = Format("rpd", "a rocprof database", _recognise, read_rpd, device_parts)
