"""Nsight Systems exports (.sqlite): one RankTrace per process and device.

Kernels, copies, CUDA calls, synchronisation and NVTX ranges of every export schema since 2021; absent tables and
columns are absent facts. PyTorch's `emit_nvtx` ranges are read as operators.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ddprof.errors import NoUsableInput
from ddprof.model import Device, HealthNote, Kind, RankTrace
from ddprof.readers.columns.assemble import DAY_NS
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.columns.finish import finish, part_identity
from ddprof.readers.files.sqlite_file import MAGIC, Database, open_database
from ddprof.readers.format import Format, Sample
from ddprof.readers.numbers import LARGEST_RANK, MAX_NS, lengths_ns, one_int
from ddprof.readers.source import Source
from ddprof.tables import NULL, Array
from ddprof.units import format_count

_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"  # launches of CUDA graphs, whose kernels are in no table (nsys's default)
_MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_NVTX = "NVTX_EVENTS"
_OS_CALLS = "OSRT_API"
_PROCESS_MASK = ~0xFFFFFF  # globalTid = hardware, vm, pid (24 bits), tid (24 bits)
_RANGES = (59, 60, 70, 71)  # push/pop, start/end, and the same in domains (ENUM_NSYS_EVENT_TYPE)
_CALL_VERSION = re.compile(r"_(?:v\d+|ptsz|ptds)(?:_v\d+)?$")
LEAST_SHARE = 0.01  # of the kernel time on a process's busiest device; with less of it a device is not the process's
# Tables that other tools make and Nsight Systems does not, what they are, and what to give in their place.
_FOREIGN = {
    "read_only_model_info": "DLProf's own database of sums, not a timeline: give ddprof the database of Nsight Systems "
    "that DLProf made beside it (nsys_profile.sqlite)",
    **dict.fromkeys(
        ("CANN_API", "CommAnalyzerTime"),
        "a database of Ascend's profiler, which ddprof does not read: record with torch_npu.profiler and "
        "export_type=ExportType.Text, and give ddprof its trace_view.json",
    ),
}
_TORCH_RANGE = re.compile(r"^(?P<name>.*?), (?:seq|op_id) = ")
_OP_ID = re.compile(r"op_id = (\d+)")
_SIZES = re.compile(r"sizes = (\[.*?\])(?:, input_op_ids|$)")
# Nodes of autograd are named after what they undo (AddmmBackward0); a script's own range is just "Backward".
_OPERATOR = re.compile(r"^(?:aten|c10d|autograd|torch|prims|profiler)::|^\w+Backward\d*$")
_COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "Unified HtoD",
    12: "Unified DtoH",
    13: "Unified DtoD",
}
_MEMORY_KINDS = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}
_SYNC_NAMES = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}


def process_parts(source: Source) -> list[str]:
    """The process and device pairs of a capture that ran kernels ("pid 111 device 0"), ordered by device; without any,
    its processes with ranges. Raises NoUsableInput where the capture is empty.
    """
    with open_database(source) as database:
        if any(table in database.tables and "globalPid" not in database.columns(table) for table in (_KERNEL, _GRAPH)):
            raise NoUsableInput(
                f"{source.label}: kernels that state no process (no column globalPid), which `nsys export` writes"
            )
        if parts := _used_devices(_device_times(database)):
            return [f"pid {p} device {d}" for p, d in parts]
        if _NVTX in database.tables:
            ranges = database.rows(
                f"SELECT DISTINCT globalTid & {_PROCESS_MASK} FROM {_NVTX} WHERE typeof(globalTid) = 'integer'"
            )
            if ranges:
                return [f"pid {_pid(p)}" for (p,) in sorted(ranges)]
        for table, what in _FOREIGN.items():
            if table in database.tables:
                raise NoUsableInput(f"{source.label}: {what}")
        kinds = ((_OS_CALLS, "of the operating system"), (_RUNTIME, "of CUDA"))
        counts = [
            (database.rows(f"SELECT COUNT(*) FROM {table}")[0][0], of)
            for table, of in kinds
            if table in database.tables
        ]
        calls = [f"{count:,} calls {of}" for count, of in counts if count]
        launches = _kernel_launches(database)
    if launches:
        raise NoUsableInput(
            f"{source.label}: {format_count(launches, 'launch call')} and no record of a kernel: what the device did "
            "was not recorded; record again"
        )
    if calls:  # the program ran, so the capture is not empty
        raise NoUsableInput(
            f"{source.label}: no kernels and no NVTX ranges beside {' and '.join(calls)}: the program gave a device no "
            "work while it was recorded, or CUDA was not traced (`nsys profile --trace cuda,nvtx`)"
        )
    raise NoUsableInput(
        f"{source.label}: the capture is empty: no kernels and no NVTX ranges "
        "(the program did nothing while it was recorded, or tracing was off)"
    )


def _kernel_launches(database: Database) -> int:
    """Number of recorded calls that launch a kernel."""
    if "nameId" not in database.columns(_RUNTIME) or not {"id", "value"} <= database.columns("StringIds"):
        return 0
    query = f"SELECT COUNT(*) FROM {_RUNTIME} JOIN StringIds ON id = nameId WHERE value LIKE '%LaunchKernel%'"
    return one_int(database.rows(query)[0][0])


def _device_times(database: Database) -> dict[tuple[int, int], float]:
    """Nanoseconds of kernels by process and device, by device first."""
    given = [
        f'SELECT globalPid, deviceId, CASE WHEN "end" - "start" BETWEEN 0 AND {DAY_NS} THEN "end" - "start" END AS ns '
        f"FROM {table} "
        "WHERE typeof(globalPid) = 'integer' AND typeof(deviceId) = 'integer' "
        f"AND deviceId BETWEEN 0 AND {LARGEST_RANK}"
        for table in (_KERNEL, _GRAPH)
        if table in database.tables
    ]
    if not given:
        return {}
    query = f"SELECT globalPid, deviceId, TOTAL(ns) FROM ({' UNION ALL '.join(given)}) GROUP BY 1, 2 ORDER BY 2, 1"
    times: dict[tuple[int, int], float] = {}
    for process, device, ns in database.rows(query):
        key = _pid(process), device
        times[key] = times.get(key, 0.0) + ns
    return times


def _used_devices(times: dict[tuple[int, int], float]) -> list[tuple[int, int]]:
    """Processes and devices without those on which a process ran hardly anything: a tensor made before
    `torch.cuda.set_device` runs one kernel of every process on device 0.
    """
    most: dict[int, float] = {}
    for (pid, _), ns in times.items():
        most[pid] = max(ns, most.get(pid, ns))
    return [(pid, device) for (pid, device), ns in times.items() if ns >= LEAST_SHARE * most[pid]]


def _left_out(database: Database, label: str, pid: int) -> list[HealthNote]:
    """A note on the kernels of a process on devices that are not its own."""
    times = _device_times(database)
    others = [device for of, device in times.keys() - set(_used_devices(times)) if of == pid]
    if not others:
        return []
    issue = f"{label}: the process ran a few kernels on other devices too: {', '.join(map(str, sorted(others)))}"
    return [HealthNote(issue, "left out; `torch.cuda.set_device` before the first tensor avoids them", "info")]


def read_nsys(source: Source) -> RankTrace:
    """One process (and device) of a capture; `source.part` names it, the first one where it is None."""
    parts = process_parts(source)
    part = source.part or parts[0]
    numbers = [int(n) for n in re.findall(r"\d+", part)]
    pid, device = numbers[0], numbers[1] if len(numbers) > 1 else None
    with open_database(source) as database:
        reader = _Reader(database, source.label, pid, device)
        reader.read()
        reader.notes += _left_out(database, source.label, pid)
        identity = part_identity(
            source,
            parts,
            host=_environment(database).get("Hostname"),
            pid=pid,
            backend="nccl" if any("nccl" in s for s in reader.columns.strings) else None,
            local_device=device,
        )
        base_ns = _base_time_ns(database)
        return finish(source, reader.columns, identity, _device(database, device), reader.notes, base_ns)


class _Reader:
    """Fills the columns of one process and device."""

    def __init__(self, database: Database, label: str, pid: int, device: int | None) -> None:
        self.database, self.label, self.pid, self.device = database, label, pid, device
        self.columns = EventColumns()
        self.notes: list[HealthNote] = []
        self._text = database.texts("StringIds", "id", "value")
        self._of_device = f'WHERE ("globalPid" >> 24) & 0xFFFFFF = {pid}' + (
            "" if device is None else f" AND deviceId = {device}"
        )
        self._of_process = f'WHERE ("globalTid" >> 24) & 0xFFFFFF = {pid}'

    def read(self) -> None:
        """Read all used tables of the capture."""
        if self.device is not None:
            self._kernels()
            self._graphs()
            self._copies()
            self._syncs()
        self._calls()
        self._ranges()
        self._thread_names()
        for table in (_KERNEL, _MEMCPY, _RUNTIME):
            if not self.database.count(table) and not (table == _KERNEL and self.database.count(_GRAPH)):
                what, effect = _MISSING[table]
                self.notes.append(HealthNote(f"{self.label}: no {what} were recorded", effect))

    def _add(
        self, kind: Any, names: list[str], tracks: list[tuple[Any, Any]], start: Array, end: Array, ids: Array
    ) -> int:
        end = np.where(end == NULL, start, end)
        return self.columns.append(kind, names, tracks, start, lengths_ns(start, end), ids)

    def _streams(self, device: Array, stream: Array) -> list[tuple[Any, Any]]:
        tracks: list[tuple[Any, Any]] = list(zip(device.tolist(), stream.tolist(), strict=True))
        for track in set(tracks):
            self.columns.name_track(*track, f"stream {track[1]}", track[0], track[1])
        return tracks

    def _kernels(self) -> None:
        names = ("start", "end", "deviceId", "streamId", "correlationId", "demangledName", "shortName")
        start, end, device, stream, ids, long, short = self.database.integers(_KERNEL, names, self._of_device)
        text = [
            self._text.get(a) or self._text.get(b) or "kernel"
            for a, b in zip(long.tolist(), short.tolist(), strict=True)
        ]
        self._add(Kind.KERNEL, text, self._streams(device, stream), start, end, ids)

    def _graphs(self) -> None:
        """CUDA graphs: nsys records a launch as one operation, unless told to record the nodes."""
        names = ("start", "end", "deviceId", "streamId", "correlationId")
        start, end, device, stream, ids = self.database.integers(_GRAPH, names, self._of_device)
        if not len(start):
            return
        self._add(Kind.KERNEL, ["CUDA graph"] * len(start), self._streams(device, stream), start, end, ids)
        issue = f"{self.label}: {len(start)} launches of CUDA graphs were recorded as one operation each"
        effect = "their collectives count as compute (`nsys profile --cuda-graph-trace=node` records what is in them)"
        self.notes.append(HealthNote(issue, effect))

    def _copies(self) -> None:
        names = ("start", "end", "deviceId", "streamId", "correlationId", "bytes", "copyKind", "srcKind", "dstKind")
        start, end, device, stream, ids, size, kind, source, target = self.database.integers(
            _MEMCPY, names, self._of_device
        )
        text = [_copy_name(*row) for row in zip(kind.tolist(), source.tolist(), target.tolist(), strict=True)]
        first = self._add(Kind.MEMCPY, text, self._streams(device, stream), start, end, ids)
        self._sizes(first, size)
        start, end, device, stream, ids, size = self.database.integers(_MEMSET, names[:6], self._of_device)
        text = ["Memset (Device)"] * len(start)
        first = self._add(Kind.MEMSET, text, self._streams(device, stream), start, end, ids)
        self._sizes(first, size)

    def _sizes(self, first: int, size: Array) -> None:
        sizes = np.where(size >= 0, size, NULL).tolist()
        self.columns.arguments.copies += list(enumerate(sizes, first))

    def _syncs(self) -> None:
        # By process: some captures number the device of a synchronisation differently from that of the kernels.
        of_process = f'WHERE ("globalPid" >> 24) & 0xFFFFFF = {self.pid}'
        names = ("start", "end", "streamId", "correlationId", "syncType")
        start, end, stream, ids, kind = self.database.integers(_SYNC, names, of_process)
        text = [_SYNC_NAMES.get(k, "Sync") for k in kind.tolist()]
        # Events of the whole context carry stream 2**32 - 1: one track of their own, which is no stream.
        tracks: list[tuple[Any, Any]] = [(self.device, s if s < 2**31 else "sync") for s in stream.tolist()]
        self._add(Kind.SYNC, text, tracks, start, end, ids)
        for device, stream_ in set(tracks):
            if isinstance(stream_, int) and self.device is not None:
                self.columns.name_track(device, stream_, f"stream {stream_}", self.device, stream_)

    def _calls(self) -> None:
        names = ("start", "end", "globalTid", "correlationId", "nameId")
        start, end, tid, ids, name = self.database.integers(_RUNTIME, names, self._of_process)
        text = [_CALL_VERSION.sub("", self._text.get(n, "call")) for n in name.tolist()]
        self._add(Kind.RUNTIME, text, self._threads(tid), start, end, ids)

    def _threads(self, tid: Array) -> list[tuple[Any, Any]]:
        return [(self.pid, t) for t in (tid & 0xFFFFFF).tolist()]

    def _ranges(self) -> None:
        if _NVTX not in self.database.tables:
            return
        kinds = ", ".join(map(str, _RANGES))
        present = self.database.columns(_NVTX)
        text_id = "textId" if "textId" in present else "NULL"
        query = (
            f"SELECT start, end, globalTid, text, {text_id} FROM {_NVTX} {self._of_process} AND eventType IN ({kinds})"
        )
        given = self.database.rows(query + " AND end IS NOT NULL")
        rows = [r for r in given if all(type(v) is int for v in r[:3])]
        self.columns.defects["rows of the wrong type"] += len(given) - len(rows)
        texts = [t if isinstance(t, str) else self._text.get(i, "") for _, _, _, t, i in rows]
        parsed = [_parse_range(t) for t in texts]
        start, end, tid = (np.array([r[c] for r in rows], np.int64) for c in range(3))
        kind = np.array([k for k, _, _ in parsed], np.uint8)
        external = np.array([i for _, _, i in parsed], np.int64)
        first = self.columns.append(
            kind, [n for _, n, _ in parsed], self._threads(tid), start, lengths_ns(start, end), None, external
        )
        self._shapes(first, texts)
        open_ranges = self.database.rows(
            f"SELECT count(*) FROM {_NVTX} {self._of_process} AND eventType IN ({kinds}) AND end IS NULL"
        )[0][0]
        if open_ranges:
            self.notes.append(
                HealthNote(
                    f"{self.label}: {open_ranges} NVTX ranges were open when the capture ended", "left out", "info"
                )
            )

    def _shapes(self, first: int, texts: Sequence[str]) -> None:
        strings = self.columns.strings
        rows = [(first + at, match[1]) for at, text in enumerate(texts) if (match := _SIZES.search(text))]
        if rows:
            dims = [strings[d] for _, d in rows]
            table = np.array([[r for r, _ in rows], dims, [strings[""]] * len(rows)], np.int64)
            self.columns.arguments.operators.append(table)

    def _thread_names(self) -> None:
        if "ThreadNames" not in self.database.tables:
            return
        query = f"SELECT globalTid & 0xFFFFFF, nameId FROM ThreadNames {self._of_process}"
        for tid, name in self.database.rows(query):
            self.columns.thread_names[self.pid, tid] = self._text.get(name, "")


_MISSING = {
    _KERNEL: ("kernels", "what the device did is unknown"),
    _MEMCPY: ("copies", "copies are missing from every measurement"),
    _RUNTIME: ("CUDA calls", "kernels cannot be traced back to the calls that launched them"),
}


def _pid(global_pid: int) -> int:
    return (global_pid >> 24) & 0xFFFFFF


def _copy_name(kind: int, source: int, target: int) -> str:
    direction = _COPY_KINDS.get(kind, "Unknown")
    if source in _MEMORY_KINDS and target in _MEMORY_KINDS:
        return f"Memcpy {direction} ({_MEMORY_KINDS[source]} -> {_MEMORY_KINDS[target]})"
    return f"Memcpy {direction}"


def _parse_range(text: str) -> tuple[int, str, int]:
    """Kind, name and operator id of an NVTX range; PyTorch appends its numbers to the operator's name."""
    torch = _TORCH_RANGE.match(text)
    name = torch["name"] if torch else text
    op_id = _OP_ID.search(text)
    is_operator = torch is not None or _OPERATOR.search(name) is not None
    return (Kind.CPU_OP if is_operator else Kind.ANNOTATION), name, one_int(op_id[1]) if op_id else NULL


def _base_time_ns(database: Database) -> int | None:
    table = "TARGET_INFO_SESSION_START_TIME"
    if not database.count(table) or "utcEpochNs" not in database.columns(table):
        return None
    clock = "systemClockNs" if "systemClockNs" in database.columns(table) else "0"
    utc, at = map(one_int, database.rows(f"SELECT utcEpochNs, ifnull({clock}, 0) FROM {table}")[0])
    return utc - at if 0 <= utc < MAX_NS and 0 <= at < MAX_NS else None


def _environment(database: Database) -> dict[str, str]:
    if "TARGET_INFO_SYSTEM_ENV" not in database.tables:
        return {}
    return {str(n): str(v) for n, v in database.rows("SELECT name, value FROM TARGET_INFO_SYSTEM_ENV")}


def _device(database: Database, index: int | None) -> Device:
    table = "TARGET_INFO_GPU"
    present = database.columns(table)
    has_gpus = bool(database.count(table))
    if index is None or not has_gpus:  # ranges without kernels, where there is a device: it was not recorded
        return Device("cuda" if index is not None or has_gpus else "cpu")
    wanted = ("name", "totalMemory", "computeMajor", "computeMinor")
    fields = ", ".join(f if f in present else "NULL" for f in wanted)
    rows = database.rows(f"SELECT {fields} FROM {table}" + (" ORDER BY id" if "id" in present else ""))
    name, memory, major, minor = rows[index] if index < len(rows) else rows[0]
    capability = (major, minor) if isinstance(major, int) and isinstance(minor, int) else None
    return Device("cuda", str(name) if name else None, memory if isinstance(memory, int) else None, capability)


def _recognise(sample: Sample) -> bool:
    """True for any SQLite database that no other format has claimed."""
    return sample.head.startswith(MAGIC)


FORMAT = Format("nsys", "an SQLite database", _recognise, read_nsys, process_parts, generality=1)
