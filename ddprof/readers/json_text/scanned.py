"""Blocks of events that the native scanner (`scan.c`) has put into columns; None where it was not built.

Built by setuptools where there is a C compiler, and left out without an error where there is none:
msgspec then reads every event, in three times the time. `DDPROF_NATIVE=0` leaves it out too, to compare.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from ddprof.readers.json_text.trace_event import Event
from ddprof.tables import Array


def _built() -> Any:
    try:
        return import_module("ddprof.readers._scan")
    except ImportError:
        return None  # not built, or on a machine of another kind


_scan = _built()
# In the scanner's order; all but "rest" are fields of Block.
_DTYPES = {
    **dict.fromkeys(("category", "name", "track"), "int32"),
    **dict.fromkeys(("ts_ns", "dur_ns", "correlation", "external_id"), "int64"),
    **dict.fromkeys(("begin", "end", "collectives", "rest"), "int32"),
    "counts": "int64",
}
Decode = Callable[[bytes], Sequence[Event | None]]


@dataclass(frozen=True)
class Block:
    """The ordinary spans of one block, one row each, and all its other events.

    `category`, `name` and `track` are numbers, times nanoseconds, `begin` and `end` places in `text`. `collectives`:
    rows whose arguments name a collective. `counts`: events by category number, these spans and those of dropped
    categories. `rest`: the events that are no ordinary spans of a used category; they are not in `counts`.
    """

    text: bytes
    decode: Decode
    rest: Sequence[Event | None]
    category: Array
    name: Array
    track: Array
    ts_ns: Array
    dur_ns: Array
    correlation: Array
    external_id: Array
    begin: Array
    end: Array
    collectives: Array
    counts: Array

    def __len__(self) -> int:
        return int(self.counts.sum()) + len(self.rest)

    def events(self, rows: Array) -> Sequence[Event]:
        """The whole events of some rows."""
        spans = zip(self.begin[rows].tolist(), self.end[rows].tolist(), strict=True)
        return [event for event in _decoded(self.text, spans, self.decode) if event is not None]


def is_native() -> bool:
    """Whether the scanner was built, and is wanted."""
    return _scan is not None and os.environ.get("DDPROF_NATIVE", "1") != "0"


class Scanner:
    """Scans the blocks of one file, with the numbers that its columns give to names, tracks and categories."""

    def __init__(self, strings: dict[Any, int], tracks: dict[Any, int], categories: dict[str, int]) -> None:
        self._scanner = _scan.Scanner(strings, tracks, categories)

    def scan(self, text: bytes, decode: Decode) -> Block | None:
        """The block of a JSON list; None where `decode` must read all of it. Raises what `decode` raises."""
        columns = self._scanner.scan(text)
        if columns is None:
            return None
        arrays = {key: np.frombuffer(column, _DTYPES[key]) for key, column in zip(_DTYPES, columns, strict=True)}
        places = arrays.pop("rest").reshape(-1, 2).tolist()
        others = _decoded(text, places, decode) if places else []
        return Block(text, decode, others, **arrays)


def _decoded(text: bytes, spans: Any, decode: Decode) -> Sequence[Event | None]:
    return decode(b"[%b]" % b",".join([text[begin:end] for begin, end in spans]))
