"""Events to columns.

A block of decoded events at a time, names and tracks dictionary-encoded, nothing kept but numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, cast

import numpy as np

from ddprof.model import DEVICE_KINDS, Kind
from ddprof.readers.columns.arguments import ArgumentTables
from ddprof.readers.columns.kinds import FLOWS, MIN_FRAME_NS, UNKNOWN, Categories, Interned, OperatorNames, device_kind
from ddprof.readers.json_text.scanned import Block, Scanner, is_native
from ddprof.readers.json_text.trace_event import NO_ARGS, Args, Event, as_text
from ddprof.readers.numbers import one_int, to_int64, to_ns
from ddprof.tables import NULL, Array

GC_NAME = "Python GC"
_IS_DEVICE = np.isin(np.arange(256), (*DEVICE_KINDS, Kind.SYNC))  # by kind
_HAS_SHAPES = np.isin(np.arange(256), (Kind.CPU_OP, Kind.ANNOTATION))
_OTHER = int(Kind.OTHER)
_NOT_MARKS = frozenset("Xsft")
# Trace Event Format, "Event Types": what is no span, no flow and nothing that is counted by its category.
_PHASES = frozenset("BEXiICbneSTpFPNODMVvRrc()") | _NOT_MARKS
_BEGIN_END = frozenset("BEbe")
_PH, _CATEGORY, _NAME, _PID, _TID = map(attrgetter, ("ph", "cat", "name", "pid", "tid"))
_TS, _DUR = attrgetter("ts"), attrgetter("dur")
_EXTERNAL, _CORRELATION, _COLLECTIVE = map(attrgetter, ("external_id", "correlation", "collective"))
_SERIAL = attrgetter("serial")


class EventColumns:
    """Grows the columns of one rank. `add` takes a block; `assemble` turns them into tables."""

    def __init__(self) -> None:
        self.strings = Interned()
        self.tracks = Interned()
        self.categories: Counter[str] = Counter()
        self.blocks: list[tuple[Array, ...]] = []
        self.rows = 0
        self.device_of: dict[int, tuple[int, int]] = {}  # track -> (device, stream)
        self.thread_names: dict[tuple[Any, Any], str] = {}
        self.process_labels: dict[Any, str] = {}
        self.defects = Counter({"null events": 0})  # the first to be told
        self.unknown_categories: Counter[str] = Counter()
        self._shapes = Interned()
        self.arguments = ArgumentTables(self.strings, self._shapes)
        self._operators = OperatorNames(self.strings)
        self._known = Categories()

    def scanner(self) -> Scanner | None:
        """The native scanner with these columns' numbering; None where it was not built."""
        given = self.strings, self.tracks, self._known, Interned(), self._shapes, self._operators
        return Scanner(*given) if is_native() else None

    def add(self, events: Block | Sequence[Event | None]) -> None:
        """Append a block. Raises InexactFloats, before anything is changed, where the block must be decoded exactly."""
        if isinstance(events, Block):
            if events.rest:
                self._decoded(events.rest)
            self._scanned(events)
        else:
            self._decoded(events)

    def _scanned(self, block: Block) -> None:
        """Append the ordinary spans of a scanned block."""
        counts = zip(self._known, block.counts.tolist(), strict=False)
        self.categories.update({category: n for category, n in counts if n})
        if len(block.name):
            kind = self._known.kind[block.category]
            columns = kind, block.name, block.track, block.ts_ns, self._durations(block.dur_ns)
            self._device_tracks(kind, block.track, block.events)
            self.arguments.add_scanned(self.rows, kind, block)
            self._append((*columns, block.correlation, block.external_id, block.serial))

    def _decoded(self, events: Sequence[Event | None]) -> None:
        present, numbers = self._present(events)
        keep = self._kept(present, numbers)
        counts = self._known.counts(numbers)
        rest = present
        if not keep.all():
            rest, numbers = list(compress(present, keep.tobytes())), numbers[keep]
        spans = rest
        phases = list(map(_PH, rest))
        if phases.count("X") < len(rest):
            is_span = np.array([phase == "X" for phase in phases], bool)
            spans, numbers = list(compress(rest, is_span.tobytes())), numbers[is_span]
        ts, dur = to_ns(list(map(_TS, spans))), to_ns(list(map(_DUR, spans)))
        # Nothing above changes this object: InexactFloats leaves it as it was.
        self.defects["null events"] += len(events) - len(present)
        self.categories.update({category: n for category, n in counts.items() if category})
        if len(spans) < len(rest) or "" in counts:
            self.categories.update(e.ph for e in rest if not e.cat)
            self._marks([e for e in rest if e.ph not in _NOT_MARKS])
        if spans:
            self._spans(spans, numbers, ts, dur)

    def _present(self, events: Sequence[Event | None]) -> tuple[list[Event], Array]:
        """The events that are not null, and the numbers of their categories."""
        try:
            return cast("list[Event]", events), self._known.all(map(_CATEGORY, events))
        except AttributeError:
            present = [e for e in events if e is not None]
            return present, self._known.all(map(_CATEGORY, present))

    def _kept(self, present: list[Event], numbers: Array) -> Array:
        """Mask of events with a used category; of Python events only garbage collections and long frames."""
        dropped = self._known.dropped[numbers]
        python = self._known.is_python[numbers]
        if python.any():
            frames = list(compress(present, python.tobytes()))
            is_short = to_ns(list(map(_DUR, frames))) < MIN_FRAME_NS
            dropped[np.flatnonzero(python)] = is_short & (np.array(list(map(_NAME, frames)), object) != GC_NAME)
        kept: Array = ~dropped
        return kept

    def append(
        self,
        kind: Any,
        names: list[str],
        tracks: list[tuple[Any, Any]],
        ts_ns: Array,
        dur_ns: Array,
        correlation: Array | None = None,
        external_id: Array | None = None,
    ) -> int:
        """Append spans of another format.

        `kind` is one Kind or an array of them. Returns the number of the first row.
        """
        first, n = self.rows, len(names)
        none = np.full(n, NULL, np.int64)
        self.blocks.append(
            (
                np.broadcast_to(np.asarray(kind, np.uint8), n),
                self.strings.all(names),
                self.tracks.all(tracks),
                ts_ns,
                self._durations(dur_ns),
                none if correlation is None else correlation,
                none if external_id is None else external_id,
                none,
            )
        )
        self.rows += n
        return first

    def mark_steps(self, tid: str, start_ns: Array, end_ns: Array, numbers: Sequence[int] = ()) -> None:
        """Append steps on a track of the host; without `numbers` they are counted from 0."""
        names = [f"ProfilerStep#{number}" for number in numbers or range(len(start_ns))]
        self.append(Kind.ANNOTATION, names, [("host", tid)] * len(names), start_ns, end_ns - start_ns)
        self.name_track("host", tid, tid)

    def name_track(self, pid: Any, tid: Any, name: str, device: int = NULL, stream: int = NULL) -> None:
        """Name a track, and set device and stream of a device track."""
        self.thread_names[pid, tid] = name
        if device != NULL:
            self.device_of[self.tracks[pid, tid]] = (device, stream)

    def _spans(self, spans: list[Event], numbers: Array, ts: Array, dur: Array) -> None:
        args = [e.args or NO_ARGS for e in spans]
        kind = self._kinds(spans, numbers, args)
        keep = (kind != _OTHER) & (ts != NULL)
        self.defects["events without a usable timestamp"] += int((ts == NULL).sum())
        if not keep.all():
            rows = np.flatnonzero(keep).tolist()
            spans, args = [spans[r] for r in rows], [args[r] for r in rows]
            kind, ts, dur = kind[keep], ts[keep], dur[keep]
        name = self.strings.all(map(_NAME, spans))
        track = self.tracks.all(zip(map(_PID, spans), map(_TID, spans), strict=True))
        correlation, external = to_int64(list(map(_CORRELATION, args))), self._external(args)
        named = list(map(_COLLECTIVE, args))
        collectives = [row for row, collective in enumerate(named) if collective is not None] if any(named) else []

        def events(rows: Array) -> Sequence[Event]:
            return [spans[row] for row in rows.tolist()]

        self._device_tracks(kind, track, events)
        shaped = np.flatnonzero(_HAS_SHAPES[kind] & self._operators.are_used(name))
        self.arguments.add(self.rows, kind, np.array(collectives, np.int64), shaped, events)
        serial = to_int64(list(map(_SERIAL, args)))
        self._append((kind, name, track, ts, self._durations(dur), correlation, external, serial))

    def _append(self, block: tuple[Array, ...]) -> None:
        self.blocks.append(block)
        self.rows += len(block[0])

    def _external(self, args: list[Args]) -> Array:
        external = to_int64(list(map(_EXTERNAL, args)))
        missing = np.flatnonzero(external == NULL)
        if not len(missing):
            return external
        external = external.copy()
        external[missing] = to_int64([args[row].external_id_old for row in missing.tolist()])
        return external

    def _kinds(self, spans: list[Event], numbers: Array, args: list[Args]) -> Array:
        kinds = self._known.kind[numbers]
        for row in np.flatnonzero(kinds == UNKNOWN).tolist():
            kinds[row] = self._guess(spans[row], args[row])
        return kinds

    def _guess(self, event: Event, args: Args) -> int:
        """Guess the kind of an event of an unknown category.

        Device work if it states a device and a stream, else left out and counted.
        """
        if args.stream != NULL and (args.device != NULL or args.correlation != NULL):
            return device_kind(event.name)
        self.unknown_categories[event.cat] += 1
        return Kind.OTHER

    def _durations(self, dur: Array) -> Array:
        missing, negative = dur == NULL, (dur < 0) & (dur != NULL)
        self.defects["events without a usable duration"] += int(missing.sum())
        self.defects["negative durations"] += int(negative.sum())
        return np.where(dur < 0, 0, dur)

    def _device_tracks(self, kind: Array, track: Array, events: Callable[[Array], Sequence[Event]]) -> None:
        on_device = _IS_DEVICE[kind]
        new = set(track[on_device].tolist()) - self.device_of.keys()
        if not new:
            return
        first = [int(np.flatnonzero(on_device & (track == number))[0]) for number in new]
        for number, event in zip(new, events(np.array(first)), strict=True):
            given = event.args or NO_ARGS
            self.device_of[number] = (_index(given.device, event.pid), _index(given.stream, event.tid))

    def _marks(self, marks: list[Event]) -> None:
        """Take names of threads and memory samples from events that are not spans, and count the other ones."""
        memory = [e for e in marks if e.name == "[memory]" and e.args is not None]
        self.arguments.add_memory(to_ns([e.ts for e in memory]), [e.args or NO_ARGS for e in memory])
        for event in marks:
            if event.ph == "M" and event.args is not None:
                if event.name == "thread_name":
                    self.thread_names[event.pid, event.tid] = as_text(event.args.name) or ""
                elif event.name == "process_labels":
                    self.process_labels[event.pid] = as_text(event.args.labels) or ""
            elif event.ph in _BEGIN_END and event.cat not in FLOWS:
                self.defects["begin/end events, which Kineto does not write"] += 1
            elif event.ph not in _PHASES and (event.ph or event.name or event.ts is not None):  # else it is no event
                self.defects["events of an unknown phase"] += 1


def _index(value: Any, fallback: Any) -> int:
    """A device or stream number: the argument, else the last digits of the pid or tid as written ("stream 7")."""
    number = one_int(value)
    if number == NULL:
        text = str(fallback)
        digits = text[len(text.rstrip("0123456789")) :]
        number = int(digits) if digits and len(digits) < 10 else NULL
    return number
