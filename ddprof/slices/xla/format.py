"""XPlane profiles (`*.xplane.pb`) of JAX, TensorFlow and torch_xla: planes of hosts and devices, lines of spans.

Work is on a GPU's streams, and on a TPU's lines "XLA Ops" and "Async XLA Ops"; other lines of a device repeat it by
module, step or name scope. Steps are marks with a number on the host, as StepTraceAnnotation of jax.profiler makes
them, else the device's line "Steps". A file holds one process; each of its devices is a part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddprof.errors import NoUsableInput
from ddprof.model import Device, HealthNote, Identity, Kind, RankTrace
from ddprof.readers.columns.event_columns import EventColumns
from ddprof.readers.columns.finish import finish
from ddprof.readers.columns.kinds import MIN_FRAME_NS, device_kind
from ddprof.readers.files.names import stem
from ddprof.readers.files.streams import open_blocks
from ddprof.readers.format import Format, Sample
from ddprof.readers.source import Source
from ddprof.slices.xla.messages import can_decode, planes_of
from ddprof.tables import NULL, Array

MAX_BYTES = 2 << 30  # of one message of protobuf
_DEVICE = re.compile(r"^/device:(?P<what>[A-Z]+):(?P<index>\d{1,7})$")
_HOST = ("/host:CPU", "/host:python-tracer")
_CALLS = ("/host:CUPTI", "/host:ROCTRACER")
_STREAM = re.compile(r"^Stream #(?P<number>\d{1,9})")
_XLA_OPS = ("XLA Ops", "Async XLA Ops")
_STEPS = "Steps"
_NO_DEVICE = "host"
_FRAME = re.compile(r"^\$(?P<file>[^\s:]{1,300}):(?P<line>\d{1,7}) (?P<function>.{1,300})$")
_COPY = re.compile(r"^Memcpy(?P<of>[HDP])2(?P<to>[HDP])$")
_SINCE_START_NS = 2**55  # below: times since the profile began (a year), above: unix times (from 1971)
_NAME = re.compile(rb"\A\n[\x00-\xff]{1,40}?(?:/host:|/device:|/task:|/virtualdevice:|Task Environment|#Chip)")
# One per closure of a thread pool, and the ends of spans, of no length: half of the events, of no use.
_NOISE = ("ThreadpoolListener::", "end: ")
_SIZE = re.compile(r"(?:^|[ ,])size:(\d{1,18})", re.ASCII)


def _parts(source: Source) -> list[str]:
    """The devices of a process, or its host where it has none. Raises NoUsableInput where no plane is complete."""
    planes, _ = _planes(source)
    return [_part(plane) for plane in _devices(planes)] or [_NO_DEVICE]


def _part(plane: Plane) -> str:
    """The name of a device's plane, without the slash that would make a folder of the file before it."""
    return plane.name.removeprefix("/")


def _read(source: Source) -> RankTrace:
    """One device of a process with its host's activity; `source.part` names it, the only one where it is None."""
    planes, notes = _planes(source)
    devices = _devices(planes)
    device = next((plane for plane in devices if source.part in (None, _part(plane))), None)
    columns = EventColumns()
    others = [plane for plane in devices if plane is not device]
    called = {at for plane in others for _, (line, _) in _work(plane) for at in plane.correlations(line)} - {NULL}
    elsewhere = np.array(sorted(called), np.int64)
    has_marks = _host(columns, [plane for plane in planes if plane.name in _HOST], elsewhere)
    _calls(columns, [plane for plane in planes if plane.name in _CALLS], elsewhere)
    if device is not None:
        _device(columns, device, has_marks)
        notes = [*notes, *_without_work(columns, device, source)]
    if not columns.rows:
        raise NoUsableInput(f"{source.label}: an XPlane profile without spans")
    start = next((ns for plane in planes if (ns := plane.stat("profile_start_time")) not in (None, NULL)), None)
    since_start = max(int(block[3].max()) for block in columns.blocks if len(block[3])) < _SINCE_START_NS
    pid = next((pid for plane in planes if (pid := plane.stat("process_id")) not in (None, NULL)), None)
    index = _DEVICE.match(device.name) if device is not None else None
    local = int(index["index"]) if index else None
    identity = Identity(None, "order", host=stem(source.path), pid=pid, local_device=local)  # TensorFlow names it so
    return finish(source, columns, identity, _described(device, planes), notes, start if since_start else None)


def _planes(source: Source) -> tuple[list[Plane], list[HealthNote]]:
    parts, held = [], 0
    with open_blocks(source.path, source.member) as blocks:
        for block in blocks:
            parts.append(block)
            held += len(block)
            if held > MAX_BYTES:
                raise NoUsableInput(f"{source.label}: an XPlane profile above {MAX_BYTES >> 30} GiB")
    planes, damaged = planes_of(b"".join(parts), source.label)
    issue = f"{source.label}: the profile is cut off or damaged"
    notes = [HealthNote(issue, f"{damaged} of its planes are left out")] if damaged else []
    return [Plane(plane) for plane in planes], notes


def _devices(planes: list[Plane]) -> list[Plane]:
    return [plane for plane in planes if _DEVICE.match(plane.name) and plane.lines]


def _host(columns: EventColumns, planes: list[Plane], elsewhere: Array) -> bool:
    """Append the threads' activity; returns whether steps are marked there.

    What has a correlation is a call of the device's runtime: XLA merges the planes of calls into the host's when it
    saves a profile. Those of `elsewhere` give another device its work.
    """
    has_marks = False
    for plane in planes:
        for number, (line, name) in enumerate(plane.lines):
            spans = plane.spans(line)
            frames = [_FRAME.match(text) for text in spans.names]
            is_mark = spans.steps != NULL
            is_frame = np.array([match is not None for match in frames], bool) & ~is_mark
            names = [_host_name(*one) for one in zip(spans.names, frames, spans.steps.tolist(), strict=True)]
            kinds = np.where(is_mark, Kind.ANNOTATION, np.where(is_frame, Kind.PYTHON, Kind.CPU_OP)).astype(np.uint8)
            kinds[spans.correlation != NULL] = Kind.RUNTIME
            keep = (~is_frame | (spans.dur_ns >= MIN_FRAME_NS)) & ~np.isin(spans.correlation, elsewhere)
            kept = [text for text, wanted in zip(names, keep.tolist(), strict=True) if wanted]
            track = (plane.name, number)
            tracks, linked = [track] * len(kept), spans.correlation[keep]
            columns.append(kinds[keep], kept, tracks, spans.start_ns[keep], spans.dur_ns[keep], linked)
            columns.name_track(*track, name)
            columns.categories.update(["host"] * len(kept))
            has_marks |= bool(is_mark.any())
    return has_marks


def _host_name(name: str, frame: re.Match[str] | None, step: int) -> str:
    if step != NULL:
        return f"ProfilerStep#{step}"
    return name if frame is None else f"{frame['file']}({frame['line']}): {frame['function']}"


def _calls(columns: EventColumns, planes: list[Plane], elsewhere: Array) -> None:
    for plane in planes:
        for number, (line, name) in enumerate(plane.lines):
            every = plane.spans(line)
            spans = every.take(np.flatnonzero(~np.isin(every.correlation, elsewhere)))
            track = (plane.name, number)
            tracks = [track] * len(spans.names)
            columns.append(Kind.RUNTIME, spans.names, tracks, spans.start_ns, spans.dur_ns, spans.correlation)
            columns.name_track(*track, name)


def _device(columns: EventColumns, plane: Plane, has_marks: bool) -> None:
    for stream, (line, name) in _work(plane):
        every = plane.spans(line)
        spans = every.take(np.flatnonzero(leaves(every)))
        _append_work(columns, spans, (plane.name, stream))
        columns.name_track(plane.name, stream, name, 0, stream)
    if not has_marks:
        for line, name in plane.lines:
            if name == _STEPS:
                _append_steps(columns, plane.spans(line))


def _work(plane: Plane) -> Iterator[tuple[int, tuple[object, str]]]:
    """(stream, line) of the lines with work, without those that repeat it by module, step or scope."""
    streams = [(int(match["number"]), one) for one in plane.lines if (match := _STREAM.match(one[1])) is not None]
    yield from streams or [(number, one) for number, one in enumerate(plane.lines) if one[1] in _XLA_OPS]


def _append_work(columns: EventColumns, spans: Spans, track: tuple[str, int]) -> None:
    names = [_readable(name) for name in spans.names]
    kinds = np.array([device_kind(name) for name in names], np.uint8)
    tracks = [track] * len(names)
    first = columns.append(kinds, names, tracks, spans.start_ns, spans.dur_ns, spans.correlation)
    copies = np.flatnonzero((kinds == Kind.MEMCPY) | (kinds == Kind.MEMSET)).tolist()
    columns.arguments.copies += [(first + at, int(spans.sizes[at])) for at in copies]
    columns.categories.update(["device"] * len(names))


def _append_steps(columns: EventColumns, spans: Spans) -> None:
    """Append the device's own steps, each from its start to the end of its work, as marks on a track of their own."""
    track = ("steps", _STEPS)
    names = [f"ProfilerStep#{number}" for number in range(len(spans.names))]
    columns.append(Kind.ANNOTATION, names, [track] * len(names), spans.start_ns, spans.dur_ns)
    columns.name_track(*track, "steps of the device")


def _readable(name: str) -> str:
    """Copies under other tools' names, so that their direction is recognised."""
    match = _COPY.match(name)
    return f"Memcpy {match['of']}to{match['to']}" if match else name


def _without_work(columns: EventColumns, device: Plane, source: Source) -> list[HealthNote]:
    if columns.categories["device"]:
        return []
    issue = f"{source.label}: no operations of {device.name}"
    return [HealthNote(issue, "what the device did is unknown", "error")]


def _described(device: Plane | None, planes: list[Plane]) -> Device:
    """The device: a GPU by its vendor, a TPU as an accelerator of a kind unknown to the rules."""
    if device is None:
        return Device("cpu")
    match = _DEVICE.match(device.name)
    if match is None or match["what"] != "GPU":
        return Device("unknown", device.text("device_type_string") or (match["what"] if match else None))
    is_amd = device.text("device_vendor") == "AMD" or any(plane.name == _CALLS[1] for plane in planes)
    return Device("rocm" if is_amd else "cuda")


def _missing() -> str | None:
    what = "an XPlane profile of JAX or TensorFlow, read with the package protobuf: `pip install ddprof[xplane]`"
    return None if can_decode() else what


def _recognise(sample: Sample) -> bool:
    """True where a file begins with a plane."""
    return _NAME.search(sample.head[:64]) is not None


@dataclass(frozen=True)
class Spans:
    """The events of one line. `steps`: the step numbers of marks, `sizes`: bytes of copies; NULL where none."""

    names: list[str]
    start_ns: Array
    dur_ns: Array
    correlation: Array
    steps: Array
    sizes: Array

    def take(self, rows: Array) -> Spans:
        """The spans of these rows."""
        others = (self.start_ns, self.dur_ns, self.correlation, self.steps, self.sizes)
        return Spans([self.names[row] for row in rows.tolist()], *(column[rows] for column in others))


class Plane:
    """One plane: "/device:TPU:0", "/host:CPU"."""

    def __init__(self, plane: Any) -> None:
        self.name = text_of(plane.name)
        self.lines = [(line, text_of(line.display_name or line.name)) for line in plane.lines]
        self._names = {e.key: text_of(e.value.display_name or e.value.name) for e in plane.event_metadata}
        self._stats = {e.key: text_of(e.value.name) for e in plane.stat_metadata}
        self._own = list(plane.stats)

    def stat(self, name: str) -> int | None:
        """A number of the plane itself."""
        return next((_integer(stat) for stat in self._own if self._stats.get(stat.metadata_id) == name), None)

    def text(self, name: str) -> str:
        """A text of the plane itself."""
        return next((self._said(stat) for stat in self._own if self._stats.get(stat.metadata_id) == name), "")

    def _said(self, stat: Any) -> str:
        """A stat's text, which may be stored once for many as the name of another stat."""
        return text_of(stat.str_value) or self._stats.get(stat.ref_value, "")

    def spans(self, line: Any) -> Spans:
        """The events of a line, in the order of their starts, without noise."""
        wanted = {key: name for key, name in self._stats.items() if name in _USED}
        names = [self._names.get(event.metadata_id, "?") for event in line.events]
        offset = np.array([event.offset_ps for event in line.events], np.int64)
        length = np.array([event.duration_ps for event in line.events], np.int64)
        columns = {name: np.full(len(names), NULL, np.int64) for name in _USED}
        if wanted:
            for row, event in enumerate(line.events):
                for stat in event.stats:
                    name = wanted.get(stat.metadata_id)
                    if name is not None:
                        columns[name][row] = (
                            _copied_bytes(self._said(stat)) if name == "memcpy_details" else _integer(stat)
                        )
        start = line.timestamp_ns + _to_ns(offset)
        end = line.timestamp_ns + _to_ns(offset + length)
        spans = Spans(names, start, end - start, *(columns[name] for name in _USED))
        keep = (length > 0) & np.array([not name.startswith(_NOISE) for name in names], bool)
        order = np.lexsort((-spans.dur_ns, spans.start_ns))
        return spans.take(order[keep[order]])

    def correlations(self, line: Any) -> Iterator[int]:
        """The numbers that tie the events of a line to calls."""
        keys = {key for key, name in self._stats.items() if name == "correlation_id"}
        return (_integer(stat) for event in line.events for stat in event.stats if stat.metadata_id in keys)


def leaves(spans: Spans) -> Array:
    """Mask of spans, in order of starts, without another inside: a loop or a call is the operations inside it."""
    end = spans.start_ns + spans.dur_ns
    holds = np.zeros(len(end), bool)
    holds[:-1] = (spans.start_ns[1:] < end[:-1]) & (end[1:] <= end[:-1])
    is_leaf: Array = ~holds
    return is_leaf


def text_of(value: bytes) -> str:
    """Text from bytes of the file, valid or not."""
    return value.decode("utf-8", "replace")


def _to_ns(ps: Array) -> Array:
    """Picoseconds to the nearest nanosecond."""
    return (ps + 500) // 1000


def _integer(stat: Any) -> int:
    """The whole number of a statistic, stored as a number or as text; NULL where it is too large."""
    value = stat.int64_value or stat.uint64_value
    if not value and stat.str_value.isdigit() and len(stat.str_value) < 19:
        value = int(stat.str_value)
    return int(value) if value < 2**62 else NULL


def _copied_bytes(details: str) -> int:
    match = _SIZE.search(details)
    return NULL if match is None else int(match[1])


_USED = ("correlation_id", "step_num", "memcpy_details")


FORMAT = Format("xplane", "an XPlane profile", _recognise, _read, _parts, missing=_missing)
