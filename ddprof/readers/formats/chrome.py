"""Other traces in Chrome's format: TensorFlow's trace viewer, rocprof's JSON, torch_npu's, others with such devices.

Devices are recognised by the names of their processes ("/device:GPU:0", "GPU2", "Ascend Hardware"), calls by the
names of their threads and functions. Spans may be complete (X) or begin / end pairs (B, E).

Launches are told by the arrows that lead from calls of the host to the work of a device.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ddprof.errors import NoUsableInput
from ddprof.model import Device, HealthNote, Identity, Kind, RankTrace
from ddprof.readers.columns.assemble import OF_DEVICES
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.columns.finish import finish
from ddprof.readers.columns.kinds import copy_name, device_kind, kind_of
from ddprof.readers.files.names import rank_in_name
from ddprof.readers.format import Format, Sample
from ddprof.readers.json_text.hccl import named_collectives, rank_beside, whole_collectives
from ddprof.readers.json_text.load import TimelineEvent, load_events
from ddprof.readers.json_text.trace_event import as_text
from ddprof.readers.numbers import one_rank
from ddprof.readers.source import Source
from ddprof.tables import NULL, Array

_DEVICE = re.compile(
    r"/(?:device:)?(?:GPU|TPU|XPU|NPU):(\d+)|^GPU\s*(\d+)|^COPY$|^(?:Ascend Hardware|HCCL$|NPU)\D*(\d*)", re.IGNORECASE
)
_HOST = re.compile(r"/(?:host|device):CPU|/cpu:\d|^CPU functions$")  # TensorFlow's profiler and timeline; PyTorch
# PyTorch before 1.8.1 (torch/autograd/profiler.py): operators, and beside them how long each took on the device between
# two events, idle time and the operators inside included.
_TORCH, _TORCH_TIMED = "CPU functions", "CUDA functions"
_TORCH_ARROW = "cpu_to_cuda"
_TORCH_RANGE = re.compile(r"^(?!.*(?:::|Backward\d*$))")  # in files of 1.6 and later, whose operators are "aten::..."
# TensorFlow's timeline (tensorflow/python/client/timeline.py): operators of a device as the host issues them, and sums
# over its streams, which stand beside them as processes.
_ISSUED = re.compile(r"^/job:.* Compute$")
_TIMELINE_SUM = re.compile(r"/(?:stream:all|memcpy) Compute$")
_TIMELINE_STREAM = re.compile(r"/stream:(\d{1,9}) Compute$")
_OTHER_THAN_GPU = re.compile(r"(?:/device:|^)(TPU|XPU|NPU|Ascend|HCCL)", re.IGNORECASE)
_DEVICES = {
    "xpu": Device("xpu"),
    "npu": Device("npu"),
    "ascend": Device("npu"),
    "hccl": Device("npu"),
    "tpu": Device("unknown", "TPU"),
}
_CALL = re.compile(r"^(?:(?:cuda|hip|cu|aclrt|ze)[A-Z]|hsa_|(?:AscendCL|Node|Runtime)@)\w*")
_STREAM = re.compile(r"stream #?(\d{1,9})", re.IGNORECASE)  # what it does follows: (MemcpyH2D)
_XLA_OPS = "XLA Ops"
_SUMMARY_TRACK = re.compile(
    r"^(?:Steps?\b|XLA (?:Modules|Ops)|TensorFlow (?:Ops|Name Scope)|Source|Framework)", re.IGNORECASE
)
_OF_ROCPROF = re.compile(
    rb'\{\s*"traceEvents"\s*:\s*\[\s*\{\s*\}\s*,\s*\{"args":\s*\{"name":\s*"(?:CPU H\w\w API|COPY|GPU\d)'
)
_ASCEND = "AscendCL@"  # before the names of its calls
_SUMMARY_PROCESS = "Overlap Analysis"  # of torch_npu: sums over the device's streams


def read_chrome(source: Source) -> RankTrace:
    """One file as one rank. Raises NoUsableInput where it holds no spans."""
    events, damage = load_events(source.path, source.member)
    processes, threads = _named(events, "process_name"), _named(events, "thread_name")
    processes |= {(event.pid, None): str(event.pid) for event in events if event.pid in (_TORCH, _TORCH_TIMED)}
    sums = {
        pid
        for (pid, _), name in processes.items()
        if name in (_SUMMARY_PROCESS, _TORCH_TIMED) or _TIMELINE_SUM.search(name)
    }
    spans, unpaired = _spans([event for event in events if event.pid not in sums])
    if not spans:
        raise NoUsableInput(f"{source.label}: a trace without spans (only marks and counters)")
    columns = EventColumns()
    devices = {
        pid: _device_index(name)
        for (pid, _), name in processes.items()
        if _DEVICE.search(name) and not _ISSUED.search(name) and pid not in sums
    }
    streams = {pid: f"stream {of[1]}" for (pid, _), name in processes.items() if (of := _TIMELINE_STREAM.search(name))}
    threads |= {(span.pid, span.tid): streams[span.pid] for span in spans if span.pid in streams}
    kept = _work(whole_collectives(_with_ranges(spans, processes), processes, threads, devices), threads, devices)
    used = _fill(columns, events, kept, threads, devices)
    timed = sum(event.pid == _TORCH_TIMED and event.ph == "X" for event in events)
    notes = [*damage, *_notes(source, devices, used, unpaired, timed)]
    rank = rank_in_name(source.member or source.path)
    rank = rank_beside(source) if rank is None else rank
    identity = Identity(rank, "file name" if rank is not None else "order", local_device=min(used, default=None))
    device = _device(processes[next(iter(devices)), None], spans) if devices else _host(processes, spans)
    if not devices and _launches_work(events, spans):  # on a GPU that was not recorded
        device = Device("cuda")
    return finish(source, columns, identity, device, notes)


def _named(events: list[TimelineEvent], what: str) -> dict[tuple[Any, Any], str]:
    return {
        (e.pid, e.tid if what == "thread_name" else None): as_text(e.args.get("name")) or ""
        for e in events
        if e.ph == "M" and e.name == what
    }


def _spans(events: list[TimelineEvent]) -> tuple[list[TimelineEvent], int]:
    """Complete spans, and begin/end pairs matched per thread; and the number of begins and ends without a partner.

    A span that ends before it begins has a negative length, one without both times none.
    """
    spans: list[TimelineEvent] = []
    open_: dict[tuple[Any, Any], list[TimelineEvent]] = defaultdict(list)
    unpaired = 0
    for event in events:
        key = (event.pid, event.tid)
        if event.ph == "X":
            spans.append(event)
        elif event.ph == "B":
            open_[key].append(event)
        elif event.ph == "E":
            if not open_[key]:
                unpaired += 1
                continue
            begin = open_[key].pop()
            is_timed = begin.ts_ns != NULL and event.ts_ns != NULL
            spans.append(replace(begin, dur_ns=event.ts_ns - begin.ts_ns if is_timed else NULL))
    return spans, unpaired + sum(map(len, open_.values()))


def _fill(
    columns: EventColumns,
    events: list[TimelineEvent],
    kept: list[TimelineEvent],
    threads: dict[tuple[Any, Any], str],
    devices: dict[Any, int],
) -> set[int]:
    """Append the spans that are work; returns the devices that did work."""
    ts, dur = np.array([s.ts_ns for s in kept], np.int64), np.array([s.dur_ns for s in kept], np.int64)
    kinds = np.array([_kind(s, devices) for s in kept], np.uint8)
    linked = launches(events, kept, devices)
    first = columns.append(
        kinds, [copy_name(s.name.removeprefix(_ASCEND)) for s in kept], [(s.pid, s.tid) for s in kept], ts, dur, linked
    )
    columns.arguments.copies += [
        (first + at, NULL) for at, kind in enumerate(kinds.tolist()) if kind in (Kind.MEMCPY, Kind.MEMSET)
    ]
    for at, op, group, seq, size, dtype in named_collectives(kept):
        columns.arguments.add_collective(first + at, op, group, seq, (size, NULL), dtype)
    columns.categories.update([s.category or s.name for s in kept])
    used = set()
    for pid, tid in list(columns.tracks):
        name = threads.get((pid, tid), "")
        columns.thread_names[pid, tid] = name
        if pid in devices:
            used.add(devices[pid])
            stream = _STREAM.match(name) or re.search(r"(\d{1,9})\D*$", name or str(tid))
            columns.name_track(pid, tid, name, devices[pid], int(stream[1]) if stream else 0)
    return used


def _launches_work(events: list[TimelineEvent], spans: list[TimelineEvent]) -> bool:
    """True where a PyTorch of old links operators to a device, or names those that only a GPU runs."""
    names = {span.name for span in spans}
    return any(event.category == _TORCH_ARROW for event in events) or any(map(OF_DEVICES.search, names))


def _with_ranges(spans: list[TimelineEvent], processes: dict[tuple[Any, Any], str]) -> list[TimelineEvent]:
    """The spans, with those that a PyTorch of old writes for ranges of the script told from its operators."""
    if not any((span.pid, None) in processes and span.name.startswith("aten::") for span in spans):
        return spans
    is_range = [processes.get((s.pid, None)) == _TORCH and _TORCH_RANGE.match(s.name) for s in spans]
    return [replace(s, category="user_annotation") if at else s for s, at in zip(spans, is_range, strict=True)]


def _work(
    spans: list[TimelineEvent], threads: dict[tuple[Any, Any], str], devices: dict[Any, int]
) -> list[TimelineEvent]:
    """All spans but those that repeat the work of a device by step, module or scope.

    On a GPU with streams the line "XLA Ops" repeats theirs; on a TPU it is the work.
    """
    with_streams = {pid for (pid, _), name in threads.items() if name.lower().startswith("stream")}
    kept: list[TimelineEvent] = []
    lines: dict[Any, list[TimelineEvent]] = defaultdict(list)
    for span in spans:
        line = threads.get((span.pid, span.tid), "") if span.pid in devices else ""
        if line == _XLA_OPS and span.pid not in with_streams:
            lines[span.pid, span.tid].append(span)
        elif not _SUMMARY_TRACK.match(line):
            kept.append(span)
    for its in lines.values():
        kept += _leaves(its)
    return kept


def _leaves(spans: list[TimelineEvent]) -> list[TimelineEvent]:
    """Spans of one line without another inside: a loop or a call is the operations inside it."""
    spans = sorted(spans, key=lambda span: (span.ts_ns, -span.dur_ns))
    ends = [span.ts_ns + span.dur_ns for span in spans]
    holds = [spans[at + 1].ts_ns < ends[at] >= ends[at + 1] for at in range(len(spans) - 1)]
    return [span for span, is_holder in zip(spans, [*holds, False], strict=False) if not is_holder]


def _kind(span: TimelineEvent, devices: dict[Any, int]) -> int:
    if span.pid in devices:
        return device_kind(copy_name(span.name))
    kind = kind_of(span.category) if span.category else None
    if kind is not None:
        return kind
    return Kind.RUNTIME if _CALL.match(span.name) else Kind.CPU_OP


def _device_index(name: str) -> int:
    match = _DEVICE.search(name)
    digits = next((g for g in match.groups() if g), "0") if match else "0"
    return one_rank(digits) or 0


def _device(name: str, spans: list[TimelineEvent]) -> Device:
    """The accelerator that the name of its process tells; a GPU's vendor by its calls."""
    other = _OTHER_THAN_GPU.search(name)
    if other is not None:
        return _DEVICES[other[1].lower()]
    return Device("rocm" if any(s.name.startswith("hip") for s in spans) else "cuda")


def _host(processes: dict[tuple[Any, Any], str], spans: list[TimelineEvent]) -> Device:
    """A CPU where the file says that its spans are a framework's operators; else nobody knows what they are."""
    is_cpu = any(_HOST.search(name) for name in processes.values())
    is_cpu |= any(kind_of(span.category) == Kind.CPU_OP for span in spans if span.category)
    return Device("cpu" if is_cpu else "unknown")


def _notes(source: Source, devices: dict[Any, int], used: set[int], unpaired: int, timed: int) -> list[HealthNote]:
    notes = []
    if timed:
        issue = f"{source.label}: operators timed on the device by an old PyTorch, idle time included: {timed}"
        notes.append(HealthNote(issue, "not read as work of the device, which may take longer than the host's step"))
    if devices and not used:
        issue = f"{source.label}: {len(devices)} devices but no device events"
        notes.append(HealthNote(issue, "device time is unknown", "error"))
    if unpaired:
        notes.append(HealthNote(f"{source.label}: {unpaired} begins or ends without a partner", "left out"))
    return notes


def _is_sure(sample: Sample) -> bool:
    """True for an object of rocprof (before rocprofv3): first the names of its calls, copies and devices."""
    return _OF_ROCPROF.match(sample.text) is not None


def _recognise(sample: Sample) -> bool:
    """True for any list of events that no other format has claimed."""
    return sample.is_list and sample.has_events


_NESTED = 16  # spans inside a call that ended before the arrow begins
_Track = tuple[Any, Any]


def launches(events: Sequence[TimelineEvent], spans: Sequence[TimelineEvent], devices: Collection[Any]) -> Array:
    """A number per span that a call shares with the work that it launched; NULL for others.

    Of several arrows into one piece of work the last to begin counts: an operator's begins before that of its call.
    """
    correlation = np.full(len(spans), NULL, np.int64)
    begins = {(e.category, e.flow): e for e in events if e.ph == "s" and e.pid not in devices}
    work = {(span.pid, span.tid, span.ts_ns): at for at, span in enumerate(spans) if span.pid in devices}
    ends: dict[int, TimelineEvent] = {}
    for arrow in events:
        if arrow.ph != "f" or (at := work.get((arrow.pid, arrow.tid, arrow.ts_ns))) is None:
            continue
        begin = begins.get((arrow.category, arrow.flow))
        if begin is not None and (at not in ends or ends[at].ts_ns < begin.ts_ns):
            ends[at] = begin
    if not ends:
        return correlation
    lines = _lines(spans, devices)
    for at, begin in ends.items():
        starts, rows = lines.get((begin.pid, begin.tid), (np.empty(0, np.int64), []))
        place = int(np.searchsorted(starts, begin.ts_ns, "right"))
        before = reversed(rows[max(0, place - _NESTED) : place])
        call = next((row for row in before if begin.ts_ns <= spans[row].ts_ns + spans[row].dur_ns), None)
        if call is not None:
            correlation[at] = correlation[call] = call + 1
    return correlation


def _lines(spans: Sequence[TimelineEvent], devices: Collection[Any]) -> dict[_Track, tuple[Array, list[int]]]:
    """Starts and numbers of the host's spans by track, in order."""
    lines: dict[_Track, list[int]] = defaultdict(list)
    for at in sorted(range(len(spans)), key=lambda at: spans[at].ts_ns):
        if spans[at].pid not in devices:
            lines[spans[at].pid, spans[at].tid].append(at)
    return {track: (np.array([spans[at].ts_ns for at in rows]), rows) for track, rows in lines.items()}


FORMAT = Format("chrome", "a Chrome trace", _recognise, read_chrome, generality=2, is_sure=_is_sure)
