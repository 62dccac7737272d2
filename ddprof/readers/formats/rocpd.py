"""Databases of rocprofv3 (rocpd, schema 3): calls, ranges, kernels and copies of AMD devices; a RankTrace per device.

Each process writes one. Its tables have the process's identifier in their names; views without it lie beside them.
Source: rocprofiler-sdk, source/share/rocprofiler-sdk-rocpd.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from ddprof.errors import NoUsableInput
from ddprof.model import Device, Kind, RankTrace
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.columns.finish import finish, part_identity
from ddprof.readers.columns.kinds import device_kind
from ddprof.readers.files.sqlite_file import MAGIC, Database, open_database
from ddprof.readers.format import Format, Sample
from ddprof.readers.numbers import LARGEST_RANK, lengths_ns
from ddprof.readers.source import Source
from ddprof.tables import NULL, Array

_COPY = re.compile(r"(HOST|DEVICE)_TO_(HOST|DEVICE)$")
_CALLS = ("HIP_", "HSA_", "RCCL_", "ROC")  # categories of libraries' calls; others are ranges of the program


class _Events(NamedTuple):
    """Columns of rocpd_event: number, that of its stack, that of the one that launched it (NULL: none), category."""

    id: Array
    stack: Array
    launched_by: Array
    category: Array

    def numbers(self, column: Array, event: Array) -> Array:
        """A column's number of each event; NULL for one that is not recorded."""
        given = dict(zip(self.id.tolist(), column.tolist(), strict=True))
        return np.array([given.get(each, NULL) for each in event.tolist()], np.int64)


def _events(database: Database) -> _Events:
    names = ("id", "stack_id", "parent_stack_id", "category_id")
    ids, stack, launched_by, category = database.integers("rocpd_event", names)
    return _Events(ids, np.where(stack == 0, NULL, stack), np.where(launched_by == 0, NULL, launched_by), category)


def device_parts(source: Source) -> list[str]:
    """The devices that worked ("device 2"). Raises NoUsableInput where none did."""
    with open_database(source) as database:
        processes = database.rows("SELECT count(DISTINCT guid) FROM rocpd_info_process")[0][0]
        devices = _devices(database)
        (of_kernels,) = database.integers("rocpd_kernel_dispatch", ("agent_id",))
        agents = np.unique(np.concatenate([of_kernels, _of_copies(database, devices)])).tolist()
    used = {devices[agent][0] for agent in agents if agent in devices}
    if processes > 1:
        raise NoUsableInput(f"{source.label}: the databases of {processes} processes in one: give ddprof each alone")
    if not used:
        raise NoUsableInput(f"{source.label}: no work of a device was recorded (rocprofv3 --sys-trace records it)")
    return [f"device {index}" for index in sorted(used)]


def read_rocpd(source: Source) -> RankTrace:
    """One device of a database; `source.part` names it, the first one where it is None."""
    parts = device_parts(source)
    part = source.part or parts[0]
    gpu = int(part.split()[-1])
    columns = EventColumns()
    with open_database(source) as database:
        devices = _devices(database)
        of_gpu = {agent: name for agent, (index, name) in devices.items() if index == gpu}
        text = database.texts("rocpd_string", "id", "string")
        events = _events(database)
        work = _work(database, devices, text, events)
        here = np.isin(work["agent"], list(of_gpu))
        _operations(columns, {name: column[here] for name, column in work.items()}, gpu)
        users = np.unique(work["pid"][here])
        _calls(columns, database, users, text, events)
    pid = int(users[0]) if len(users) == 1 and users[0] != NULL else None
    identity = part_identity(source, parts, pid=pid, local_device=gpu)
    return finish(source, columns, identity, Device("rocm", next(iter(of_gpu.values()))), [])


def _devices(database: Database) -> dict[int, tuple[int, str | None]]:
    """Index and name of each GPU by the number of its agent."""
    rows = database.rows("SELECT id, type_index, product_name FROM rocpd_info_agent WHERE type = 'GPU'")
    return {
        agent: (index, name if isinstance(name, str) and name else None)
        for agent, index, name in rows
        if isinstance(agent, int) and isinstance(index, int) and 0 <= index <= LARGEST_RANK
    }


def _of_copies(database: Database, devices: dict[int, tuple[int, str | None]]) -> Array:
    """The agent of each copy: the GPU that it writes, else the one that it reads."""
    to, of = database.integers("rocpd_memory_copy", ("dst_agent_id", "src_agent_id"))
    return np.asarray(np.where(np.isin(to, list(devices)), to, of))


def _work(
    database: Database, devices: dict[int, tuple[int, str | None]], text: dict[int, str], events: _Events
) -> dict[str, Array]:
    """Kernels and copies of all devices as columns; `call`: the stack number of the call that launched it."""
    kernel = database.texts("rocpd_info_kernel_symbol", "id", "display_name")
    names = ("agent_id", "pid", "stream_id", "queue_id", "start", "end", "event_id", "kernel_id")
    agent, pid, stream, queue, start, end, event, what = database.integers("rocpd_kernel_dispatch", names)
    of_copies = (*names[1:-1], "name_id", "size")
    c_pid, c_stream, c_queue, c_start, c_end, c_event, c_what, size = database.integers("rocpd_memory_copy", of_copies)
    called = [kernel.get(number, "") for number in what.tolist()]
    copied = [_copy_name(text.get(number, "")) for number in c_what.tolist()]
    return {
        "agent": np.concatenate([agent, _of_copies(database, devices)]),
        "pid": np.concatenate([pid, c_pid]),
        "stream": np.concatenate(
            [np.where(stream == NULL, queue, stream), np.where(c_stream == NULL, c_queue, c_stream)]
        ),
        "start": np.concatenate([start, c_start]),
        "end": np.concatenate([end, c_end]),
        "call": events.numbers(events.launched_by, np.concatenate([event, c_event])),
        "size": np.concatenate([np.full(len(start), NULL), size]),
        "name": np.array([*called, *copied], object),
        "kind": np.array([*map(device_kind, called), *[Kind.MEMCPY] * len(copied)], np.uint8),
    }


def _copy_name(name: str) -> str:
    match = _COPY.search(name)
    return f"Memcpy {match[1][0]}to{match[2][0]}" if match else f"Memcpy {name}"


def _operations(columns: EventColumns, work: dict[str, Array], gpu: int) -> None:
    tracks: list[tuple[Any, Any]] = [(f"GPU{gpu}", stream) for stream in work["stream"].tolist()]
    lengths = lengths_ns(work["start"], work["end"])
    first = columns.append(work["kind"], work["name"].tolist(), tracks, work["start"], lengths, work["call"])
    for track in set(tracks):
        columns.name_track(*track, f"stream {track[1]}", gpu, int(track[1]))
    for at in np.flatnonzero((work["kind"] == Kind.MEMCPY) | (work["kind"] == Kind.MEMSET)).tolist():
        size = int(work["size"][at])
        columns.arguments.copies.append((first + at, size if size >= 0 else NULL))


def _calls(columns: EventColumns, database: Database, users: Array, text: dict[int, str], events: _Events) -> None:
    """Calls and ranges of the processes that used the device."""
    names = ("pid", "tid", "start", "end", "name_id", "event_id")
    pid, tid, start, end, name, event = database.integers("rocpd_region", names)
    category = events.numbers(events.category, event)
    is_call = [text.get(each, "").startswith(_CALLS) for each in category.tolist()]
    here = np.flatnonzero(np.isin(pid, users))
    kinds = np.where(is_call, Kind.RUNTIME, Kind.ANNOTATION).astype(np.uint8)[here]
    called = [text.get(number, "") for number in name[here].tolist()]
    tracks: list[tuple[Any, Any]] = list(zip(pid[here].tolist(), tid[here].tolist(), strict=True))
    numbers = events.numbers(events.stack, event[here])
    columns.append(kinds, called, tracks, start[here], lengths_ns(start, end)[here], numbers)


def _recognise(sample: Sample) -> bool:
    return sample.head.startswith(MAGIC) and b"rocpd_info_agent" in sample.head


FORMAT = Format("rocpd", "a database of rocprofv3", _recognise, read_rocpd, device_parts)
