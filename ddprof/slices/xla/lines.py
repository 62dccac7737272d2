"""Lines of a plane -> spans: names, times in nanoseconds, and the few statistics that are used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddprof.tables import NULL, Array

# One per closure of a thread pool, and the ends of spans, of no length: half of the events, of no use.
_NOISE = ("ThreadpoolListener::", "end: ")
_SIZE = re.compile(rb"(?:^|[ ,])size:(\d{1,18})")


@dataclass(frozen=True)
class Spans:
    """The events of one line. `steps`: the step numbers of marks, `sizes`: bytes of copies; NULL where none."""

    names: list[str]
    start_ns: Array
    dur_ns: Array
    correlation: Array
    steps: Array
    sizes: Array

    def where(self, keep: Array) -> Spans:
        """Some of them."""
        names = [name for name, kept in zip(self.names, keep.tolist(), strict=True) if kept]
        others = (self.start_ns, self.dur_ns, self.correlation, self.steps, self.sizes)
        return Spans(names, *(column[keep] for column in others))


class Plane:
    """One plane: "/device:TPU:0", "/host:CPU"."""

    def __init__(self, plane: Any) -> None:
        self.name = text_of(plane.name)
        self.lines = [(line, text_of(line.display_name or line.name)) for line in plane.lines]
        self._names = {e.key: text_of(e.value.display_name or e.value.name) for e in plane.event_metadata}
        self._stats = {e.key: text_of(e.value.name) for e in plane.stat_metadata}
        self._own = list(plane.stats)

    def stat(self, name: str) -> int | None:
        """A number that belongs to the plane itself."""
        return next((_integer(stat) for stat in self._own if self._stats.get(stat.metadata_id) == name), None)

    def text(self, name: str) -> str:
        """A text that belongs to the plane itself."""
        return next((text_of(s.str_value) for s in self._own if self._stats.get(s.metadata_id) == name), "")

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
                        columns[name][row] = _copied_bytes(stat) if name == "memcpy_details" else _integer(stat)
        start = line.timestamp_ns + _to_ns(offset)
        end = line.timestamp_ns + _to_ns(offset + length)
        found = Spans(names, start, end - start, *(columns[name] for name in _USED))
        keep = (length > 0) & np.array([not name.startswith(_NOISE) for name in names], bool)
        order = np.lexsort((-found.dur_ns, found.start_ns))
        kept = order[keep[order]]
        others = (found.start_ns, found.dur_ns, found.correlation, found.steps, found.sizes)
        return Spans([names[row] for row in kept.tolist()], *(column[kept] for column in others))


def leaves(spans: Spans) -> Array:
    """Which spans hold no other of their line: a loop or a call is the operations inside it. In order of starts."""
    end = spans.start_ns + spans.dur_ns
    holds = np.zeros(len(end), bool)
    holds[:-1] = (spans.start_ns[1:] < end[:-1]) & (end[1:] <= end[:-1])
    found: Array = ~holds
    return found


def text_of(value: bytes) -> str:
    """A text of the file, whatever is in it."""
    return value.decode("utf-8", "replace")


def _to_ns(ps: Array) -> Array:
    """Nearest: whole picoseconds are no unit of ours."""
    return (ps + 500) // 1000


def _integer(stat: Any) -> int:
    """A number, which may be written as text."""
    value = stat.int64_value or stat.uint64_value
    if not value and stat.str_value.isdigit() and len(stat.str_value) < 19:
        value = int(stat.str_value)
    return int(value) if value < 2**62 else NULL


def _copied_bytes(stat: Any) -> int:
    found = _SIZE.search(stat.str_value)
    return NULL if found is None else int(found[1])


_USED = ("correlation_id", "step_num", "memcpy_details")
