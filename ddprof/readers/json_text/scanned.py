"""Decoder of JSON lists of events: by the native scanner (`scan.c`) into columns, else by msgspec.

The scanner is built by setuptools where there is a C compiler, and left out without an error where there is none:
msgspec then reads every event, in three times the time. `DDPROF_NATIVE=0` leaves it out too, to compare.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from decimal import Decimal
from importlib import import_module
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from ddprof.readers.json_text.salvage import Salvage, Salvager
from ddprof.readers.json_text.trace_event import Event, event_from_json
from ddprof.tables import Array

_LIST = list[Event | None]
_ONE = msgspec.json.Decoder(Event, float_hook=Decimal)


# In the scanner's order; all but "rest" are fields of Block.
_DTYPES = {
    **dict.fromkeys(("category", "name", "track"), "int32"),
    **dict.fromkeys(("ts_ns", "dur_ns", "correlation", "external_id", "serial"), "int64"),
    **dict.fromkeys(("begin", "end", "collectives", "stated_as"), "int32"),
    "seq": "int64",
    **dict.fromkeys(("shaped", "dims", "types", "calls", "rest"), "int32"),
    "counts": "int64",
}


def _built() -> Any:
    try:
        scan = import_module("ddprof.readers._scan")
    except ImportError:
        return None  # not built, or on a machine of another kind
    return scan if getattr(scan, "COLUMNS", 0) == len(_DTYPES) else None  # built from a source that was another


_scan = _built()
Decode = Callable[[bytes], Sequence[Event | None]]


class Block(Struct, frozen=True):
    """The ordinary spans of one block, one per row, and all its other events.

    `category`, `name` and `track` are numbers, times nanoseconds, `begin` and `end` places in `text`. `collectives`:
    rows whose arguments name a collective; `seq`: its number, `stated_as`: that of all else that it states (-1: decode
    it). `shaped`: operators whose shapes are used; `dims` and `types`: numbers of their texts. `calls`: operators of
    which more is used. `counts`: events by category number, these spans and those of dropped categories.
    `rest`: the events that are no ordinary spans of a used category; they are not in `counts`.
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
    serial: Array
    begin: Array
    end: Array
    collectives: Array
    stated_as: Array
    seq: Array
    shaped: Array
    dims: Array
    types: Array
    calls: Array
    counts: Array

    def __len__(self) -> int:
        return int(self.counts.sum()) + len(self.rest)

    def events(self, rows: Array) -> Sequence[Event]:
        """The whole events of some rows."""
        spans = zip(self.begin[rows].tolist(), self.end[rows].tolist(), strict=True)
        return [event for event in _decoded(self.text, spans, self.decode) if event is not None]


def is_native() -> bool:
    """True where the native scanner was built and is not disabled."""
    return _scan is not None and os.environ.get("DDPROF_NATIVE", "1") != "0"


class Scanner:
    """Scanner of one file's blocks that uses its columns' numbers for names, tracks, categories and shapes.

    `statements` numbers what collectives state; `operators` says what is used of an operator, by its name's number.
    """

    def __init__(
        self,
        strings: dict[Any, int],
        tracks: dict[Any, int],
        categories: dict[str, int],
        statements: dict[Any, int],
        shapes: dict[Any, int],
        operators: Any,
    ) -> None:
        self._scanner = _scan.Scanner(strings, tracks, categories, statements, shapes, operators)

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


def _one_event(text: bytes) -> Event | None:
    """An event; None for any other object. Raises msgspec.DecodeError or UnicodeDecodeError."""
    event = _ONE.decode(text)
    return event if event.ph or event.ts is not None else None


class Decoder:
    """Decodes the blocks of one file.

    `exact` reads fractions digit by digit instead of through float64 (three times slower); the scanner always does.
    """

    def __init__(self, scanner: Scanner | None = None) -> None:
        self._fast = msgspec.json.Decoder(_LIST)
        self._exact = msgspec.json.Decoder(_LIST, float_hook=Decimal)
        self._scanner = scanner
        self._salvager: Salvager[Event | None] = Salvager(_one_event, event_from_json)
        self.exact = False
        self.text = b""

    def decode(self, text: bytes) -> Block | list[Event | None]:
        """The events of a JSON list. Raises msgspec.DecodeError or UnicodeDecodeError."""
        self.text = text
        decode = (self._exact if self.exact else self._fast).decode
        block = self._scanner.scan(text, decode) if self._scanner else None
        return decode(text) if block is None else block

    def redecode(self) -> list[Event | None]:
        """The last block again, and every later one, digit by digit. (Salvaged text is exact already.)"""
        self.exact = True
        return self._exact.decode(self.text)

    def salvage(self, text: bytes, is_last: bool) -> Salvage[Event | None]:
        """The sound events of damaged text; `is_last`: nothing follows it."""
        return self._salvager(text, is_last)
