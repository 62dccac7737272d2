"""Grown columns to the tables of a RankTrace: sorted by time, rows renumbered, defects clipped and counted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from ddprof.model import (
    COLLECTIVES,
    COPIES,
    DEVICE_KINDS,
    EVENTS,
    LOST_RECORDS,
    MEMORY,
    MESSAGE_CALLS,
    OPERATORS,
    TRACKS,
    HealthNote,
    Kind,
)
from ddprof.readers.columns.event_columns import GC_NAME, EventColumns
from ddprof.readers.columns.kinds import PYTHON_FRAMES
from ddprof.readers.numbers import near_each_other
from ddprof.readers.script.stacks import traced_modules, traced_script
from ddprof.tables import NULL, Array, Schema, Table, of_kinds
from ddprof.untrusted.secrets import masked

DAY_NS = 86_400 * 10**9
UNIX_NS = 10**18  # 2001: times beyond this are unix time even where the file states no base
OVERLAP_TOLERANCE_NS = 1_000  # old profilers round to whole microseconds
OVERLAP_SHARE = 0.01  # of a trace's device operations, before overlaps are worth a note

# Of all names of a file, as each is looked at some fifty times: 38 traces by others have up to 59,475.
MOST_NAMING_CHARACTERS = 8 << 20
_LONG_NAMES = f"names, of more than {MOST_NAMING_CHARACTERS >> 20} million characters in all"

# What only jobs on a GPU record on their hosts; AMD's libraries keep NCCL's name. Recurrent networks ask on CPUs, too,
# whether cuDNN accepts their input (`aten::cudnn_is_acceptable`, the one such operator with a CPU version).
OF_DEVICES = re.compile(r"^nccl:|^aten::(?:record_stream$|_?cudnn_(?!is_acceptable)|miopen_)")

# Calls that give a device nothing to do. torch's profiler waits for the device when it stops, whatever the job used,
# and loaders pin batches.
_ASKS_OR_WAITS = re.compile(
    r"^(?:cuda|hip)(?:DeviceSynchronize$|Host|FreeHost|StreamIsCapturing$|\w*Get|\w*Query)|^cu(?:Init$|\w*Get)"
)


class Assembled(Struct, frozen=True):
    """The tables of one rank, and notes on their defects."""

    strings: tuple[str, ...]
    tables: dict[str, Any]  # by field of RankTrace
    health: list[HealthNote]


def assemble(columns: EventColumns, base_time_ns: int, label: str) -> Assembled:
    """Sort by start, drop out-of-range events, add the base time; empties `columns` as it goes to save memory."""
    kind, name, track, ts, dur, correlation, external, serial = _joined(columns)
    order = _order(columns, ts, dur, base_time_ns)
    frames, order = _frames(columns, kind, name, order)
    framed = track[frames], ts[frames] + base_time_ns, dur[frames], name[frames]
    if order is not None:
        kind, name, track, ts, dur, correlation, external, serial = (
            c[order] for c in (kind, name, track, ts, dur, correlation, external, serial)
        )
    dur, clipped = _without_overflow(ts, dur)
    ts = ts + base_time_ns
    number_of, tracks = _tracks(columns)
    track = number_of[track] if len(tracks) else track
    strings, shortened = _clean(list(columns.strings))
    called = number_of[framed[0]], *framed[1:], strings
    script, modules = traced_script(*called), traced_modules(*called)
    for number in np.setdiff1d(framed[3], name).tolist():
        strings[number] = ""  # of frames alone: what is looked for among names is not looked for here
    events = EVENTS.table(
        {
            "kind": kind,
            "name": name,
            "track": track,
            "ts_ns": ts,
            "dur_ns": dur,
            "correlation": correlation,
            "external_id": _naming_operators(kind, correlation, external, ts, dur),
        }
    )
    tables = {
        "events": events,
        "tracks": tracks,
        **_sparse(columns, order, base_time_ns),
        "lost_records": _lost_records(columns, serial, track, ts),
        **{f"script_{what}": table for what, table in script._asdict().items()},
        **{f"module_{what}": table for what, table in modules._asdict().items()},
    }
    columns.defects["durations beyond a day (overflow)"] += clipped
    columns.defects[_LONG_NAMES] += shortened
    columns.defects["collectives whose group has no usable name"] += columns.arguments.groups.unnamed
    return Assembled(tuple(strings), tables, _defect_notes(columns, label))


def _joined(columns: EventColumns) -> list[Array]:
    if not columns.blocks:
        return [np.empty(0, dtype) for dtype in (np.uint8, np.int32, np.int32, *[np.int64] * 5)]
    parts = [list(column) for column in zip(*columns.blocks, strict=True)]
    columns.blocks.clear()
    return [np.concatenate(parts.pop(0)) for _ in range(len(parts))]  # each goes once it is joined


def _lost_records(columns: EventColumns, serial: Array, track: Array, ts_ns: Array) -> Table:
    """LOST_RECORDS by numbers that a file lacks: PyTorch's profiler numbers what it recorded on hosts from 0 on when it
    writes the file ("Ev Idx"), one thread after another. None where Python frames or memory samples, which are not all
    kept, have numbers too.
    """
    if columns.arguments.memory or any(columns.categories[category] for category in PYTHON_FRAMES):
        return LOST_RECORDS.empty()
    rows = np.flatnonzero(serial != NULL)
    number, first = np.unique(serial[rows], return_index=True)
    rows, missing = rows[first], np.diff(number) - 1
    start_ns, end_ns, of = ts_ns[rows[:-1]], ts_ns[rows[1:]], track[rows]
    holes = (missing > 0) & (of[1:] == of[:-1]) & (start_ns <= end_ns)
    return LOST_RECORDS.table({"start_ns": start_ns[holes], "end_ns": end_ns[holes], "count": missing[holes]})


def _naming_operators(kind: Array, correlation: Array, external: Array, ts_ns: Array, dur_ns: Array) -> Array:
    """External ids, without those of launches and of device work where each repeats the correlation and most launches
    lie outside the operator of that number (Kineto before its pull request 873, PyTorch up to 2.2): operators are
    counted apart there, and an equal number is of any of them.
    """
    calls = np.flatnonzero((kind == Kind.RUNTIME) & (external != NULL))
    operators = np.flatnonzero((kind == Kind.CPU_OP) & (external != NULL))
    if not len(calls) or not len(operators) or (external[calls] != correlation[calls]).any():
        return external
    operators = operators[np.argsort(external[operators], kind="stable")]
    at = np.searchsorted(external[operators], external[calls])
    around = operators[np.minimum(at, len(operators) - 1)]
    is_named = external[around] == external[calls]
    begun, ended = ts_ns[around], ts_ns[around] + dur_ns[around]
    is_inside = is_named & (ts_ns[calls] >= begun) & (ts_ns[calls] <= ended)
    if 2 * is_inside.sum() >= is_named.sum():
        return external
    return np.where((kind == Kind.RUNTIME) | of_kinds(kind, DEVICE_KINDS), NULL, external)


def _without_overflow(ts: Array, dur: Array) -> tuple[Array, int]:
    """Durations, with 0 for those longer than a day and than the whole trace, which are overflowed counters."""
    if not len(ts):
        return dur, 0
    bad = dur > max(DAY_NS, int(ts.max() - ts.min()))
    return (np.where(bad, 0, dur), int(bad.sum())) if bad.any() else (dur, 0)


def _order(columns: EventColumns, ts: Array, dur: Array, base_time_ns: int) -> Array | None:
    """The kept rows, by start and the longest first; None where all rows stay as they are.

    Left out are events without a time, and those that cannot be of the same recording as most: one absurd time would
    otherwise be the length of the window, and differences of times could overflow.
    """
    given = ts != NULL
    near = near_each_other(ts) & near_each_other(np.where(given, ts, 0) + base_time_ns)
    columns.defects["events without a usable timestamp"] += int((~given).sum())
    columns.defects["events more than 30 days from most others"] += int((given & ~near).sum())
    rows = np.flatnonzero(near)
    was_sorted = not (np.diff(ts[rows]) < 0).any()
    if not was_sorted:
        rows = rows[np.argsort(ts[rows], kind="stable")]
    is_equal = np.diff(ts[rows]) == 0
    if (is_equal & (np.diff(dur[rows]) > 0)).any():  # few begin at once: they alone are sorted by length
        at = np.flatnonzero(np.append(is_equal, False) | np.append(False, is_equal))
        rows[at] = rows[at][np.lexsort((-dur[rows[at]], ts[rows[at]]))]
        was_sorted = False
    return None if was_sorted and len(rows) == len(ts) else rows


def _frames(columns: EventColumns, kind: Array, name: Array, order: Array | None) -> tuple[Array, Array | None]:
    """Rows of the Python frames, and the order of the events without them, as frames become stacks."""
    is_frame = (kind == Kind.PYTHON) & (name != columns.strings.get(GC_NAME, -1))
    if not is_frame.any():
        return np.empty(0, np.int64), order
    rows = np.arange(len(kind)) if order is None else order
    return rows[is_frame[rows]], rows[~is_frame[rows]]


def _tracks(columns: EventColumns) -> tuple[Array, Table]:
    """The tracks table, and its row for each track number; a thread written once as a number and once as text is one
    track.
    """
    merged: dict[tuple[str, str], int] = {}
    number_of = np.empty(max(len(columns.tracks), 1), np.int32)
    rows: list[dict[str, Any]] = []
    names = {(str(pid), str(tid)): name for (pid, tid), name in columns.thread_names.items()}
    for (pid, tid), old in columns.tracks.items():
        key = (_written(pid), _written(tid))
        number = merged.setdefault(key, len(merged))
        number_of[old] = number
        if number == len(rows):
            rows.append({"pid": key[0], "tid": key[1], "name": names.get(key, ""), "device": NULL, "stream": NULL})
        if old in columns.device_of:
            rows[number]["device"], rows[number]["stream"] = columns.device_of[old]
    table = TRACKS.table({c.name: [row[c.name] for row in rows] for c in TRACKS.columns})
    return number_of, table


def _written(identifier: Any) -> str:
    return "" if identifier is None else str(identifier)


def _clean(strings: list[str]) -> tuple[list[str], int]:
    """Text without half surrogate pairs, which no file can hold, and without secrets; how many were shortened."""
    shortened = 0
    if sum(map(len, strings)) > MOST_NAMING_CHARACTERS:
        most = MOST_NAMING_CHARACTERS // len(strings)
        shortened = sum(len(text) > most for text in strings)
        strings = [text[:most] for text in strings]
    try:
        "".join(strings).encode()
    except UnicodeEncodeError:
        strings = [s.encode("utf-8", "replace").decode() for s in strings]
    return list(map(masked, strings)), shortened


def _sparse(columns: EventColumns, order: Array | None, base_time_ns: int) -> dict[str, Table]:
    position = np.full(columns.rows, -1)  # of an event that was left out
    position[order if order is not None else slice(None)] = np.arange(columns.rows if order is None else len(order))
    given = columns.arguments
    tables = {
        "collectives": _by_row(COLLECTIVES, given.collective_rows(), position),
        "message_calls": _by_row(MESSAGE_CALLS, given.messages, position),
        "copies": _by_row(COPIES, given.copies, position),
        "operators": _by_row(OPERATORS, np.concatenate(given.operators, axis=1).T if given.operators else [], position),
    }
    memory = np.concatenate(given.memory, axis=1) if given.memory else np.empty((4, 0), np.int64)
    memory = memory[:, near_each_other(memory[0])]
    memory = memory[:, np.argsort(memory[0], kind="stable")]
    ts, device, allocated, reserved = memory
    tables["memory"] = MEMORY.table(
        {"ts_ns": ts + base_time_ns, "device": device, "allocated_bytes": allocated, "reserved_bytes": reserved}
    )
    return tables


def _by_row(schema: Schema, rows: Sequence[tuple[int, ...]] | Array, position: Array) -> Table:
    """A sparse table renumbered and sorted by its first column, an event row."""
    if not len(rows):
        return schema.empty()
    values = np.array(rows, np.int64)
    values[:, 0] = position[values[:, 0]]
    values = values[values[:, 0] >= 0]
    values = values[np.argsort(values[:, 0], kind="stable")]
    return schema.table({column.name: values[:, at] for at, column in enumerate(schema.columns)})


def _defect_notes(columns: EventColumns, label: str) -> list[HealthNote]:
    effect = {
        "null events": "skipped; nothing else is affected",
        "negative durations": "counted as zero length; time in them is missing",
        "events without a usable duration": "counted as zero length; time in them is missing",
        "durations beyond a day (overflow)": "counted as zero length; time in them is missing",
        "events without a usable timestamp": "left out",
        "events more than 30 days from most others": "left out, as they cannot belong to this recording",
        "rows of the wrong type": "left out",
        "collectives whose group has no usable name": "their group is identified by its ranks, where stated",
        "events of an unknown phase": "left out",
        _LONG_NAMES: "shortened; what differs behind that counts as one",
        "begin/end events, which Kineto does not write": "left out",
    }
    notes = [HealthNote(f"{label}: {n} {what}", effect[what]) for what, n in columns.defects.items() if n]
    if columns.unknown_categories:
        named = ", ".join(f"{n} of '{category}'" for category, n in columns.unknown_categories.most_common(5))
        notes.append(
            HealthNote(f"{label}: events of unknown categories: {named}", "left out of every measurement", "info")
        )
    return notes


def overlap_note(events: Table, label: str) -> list[HealthNote]:
    """A note on slices of one stream that overlap in part. They are kept, as device time is a union over streams."""
    rows = np.flatnonzero(of_kinds(events["kind"], DEVICE_KINDS))
    if not len(rows):
        return []
    by_track = rows[np.argsort(events["track"][rows], kind="stable")]
    start, track = events["ts_ns"][by_track], events["track"][by_track]
    end = start + events["dur_ns"][by_track]
    same = track[1:] == track[:-1]
    overlapping = int((same & (start[1:] < end[:-1] - OVERLAP_TOLERANCE_NS)).sum())
    if overlapping <= OVERLAP_SHARE * len(rows):
        return []
    issue = f"{label}: {overlapping} of {len(rows)} device operations overlap their predecessor on the same stream"
    return [HealthNote(issue, "overlapping time counts once", "info")]


def lengthless_note(events: Table, label: str) -> list[HealthNote]:
    """A note where device operations were recorded, all without a length."""
    is_device = of_kinds(events["kind"], DEVICE_KINDS)
    if not is_device.any() or events["dur_ns"][is_device].any():
        return []
    issue = f"{label}: none of {int(is_device.sum())} device operations has a length"
    return [HealthNote(issue, "device time of this rank is unknown")]


def is_unix_time(events: Table) -> bool:
    """True where the events' times are unix time by their size."""
    return bool(len(events) and int(events["ts_ns"][0]) > UNIX_NS)


def calls_device(events: Table, strings: tuple[str, ...]) -> bool:
    """True where a call of the runtime gives a device something to do."""
    called = np.unique(events["name"][events["kind"] == Kind.RUNTIME]).tolist()
    return not all(_ASKS_OR_WAITS.match(strings[name]) for name in called)


def runs_on_device(events: Table, strings: tuple[str, ...], backend: str | None) -> bool:
    """True where the host's events are of a job on a GPU, recorded or not: NCCL or operators without a CPU version."""
    if backend == "nccl":
        return True
    named = np.array([OF_DEVICES.search(name) is not None for name in strings] or [False])
    return bool(len(events)) and bool(named[events["name"]].any())


def missing_device_note(
    events: Table, strings: tuple[str, ...], arrows: int, label: str, unrecorded: bool
) -> list[HealthNote]:
    """A note where kernels were launched (by calls, or by the `arrows` of flows to a device) but none was recorded."""
    if of_kinds(events["kind"], DEVICE_KINDS).any():
        return []
    launches = np.array(["Launch" in s for s in strings] or [False])
    calls = int((launches[events["name"]] & (events["kind"] == Kind.RUNTIME)).sum()) if len(events) else 0
    if not calls and not arrows and not unrecorded:
        return []
    issue = f"{label}: {calls or arrows} kernel launches but no device events"
    if not calls and not arrows:
        issue = f"{label}: a job on a GPU, recorded without it (ProfilerActivity.CUDA)"
    return [HealthNote(issue, "device time is unknown", "error")]
