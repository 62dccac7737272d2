"""Small event files, read whole, for formats that need every argument: typed events, or plain records."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from ddprof.errors import NoUsableInput
from ddprof.model import HealthNote
from ddprof.readers.files.streams import open_blocks
from ddprof.readers.json_text.damage import mended_note
from ddprof.readers.json_text.salvage import Salvager
from ddprof.readers.json_text.stream import EventStream
from ddprof.readers.json_text.trace_event import as_identifier, as_text
from ddprof.readers.numbers import to_ns

_MARKS = {"ph", "ts", "type", "recordType"}  # of Chrome's format, and of NCCL's logs
# What is read of one file: as many as TensorFlow's trace viewer shows at most; as Python values they take 500 MB.
MOST_EVENTS = 1_000_000
MOST_DIGITS = 19  # of a number that 64 bits hold


@dataclass(frozen=True)
class TimelineEvent:
    """One event of Chrome's format; values of the wrong type read as missing.

    `ts_ns` and `dur_ns` are NULL where they are no times; an event without a duration has length 0.
    """

    ph: str
    category: str
    name: str
    pid: int | str | float | None
    tid: int | str | float | None
    ts_ns: int
    dur_ns: int
    args: dict[str, Any]
    flow: int | str | float | None = None  # number of the arrow of which it is an end


def load_events(path: str, member: str | None = None) -> tuple[list[TimelineEvent], list[HealthNote]]:
    """Every event of a JSON file of any layout, and notes on losses; raises as `load_records` does."""
    records, notes = load_records(path, member)
    ts, dur = to_ns([r.get("ts") for r in records]), to_ns([r.get("dur", 0) for r in records])
    times = zip(records, ts.tolist(), dur.tolist(), strict=True)
    mended = sum(map(_is_odd, records))
    if mended:
        notes = [*notes, mended_note(f"{path}!{member}" if member else path, mended)]
    return [_event(record, ts_ns, dur_ns) for record, ts_ns, dur_ns in times], notes


def _is_odd(record: dict[str, Any]) -> bool:
    """True where an event has a value of the wrong type, which reads as missing."""
    texts, identifiers = map(record.get, ("ph", "cat", "name")), map(record.get, ("pid", "tid"))
    return any(value is not None and as_text(value) is None for value in texts) or any(
        value is not None and as_identifier(value) is None for value in identifiers
    )


def _event(record: dict[str, Any], ts_ns: int, dur_ns: int) -> TimelineEvent:
    args = record.get("args")
    return TimelineEvent(
        ph=as_text(record.get("ph")) or "",
        category=as_text(record.get("cat")) or "",
        name=as_text(record.get("name")) or "",
        pid=_number(record.get("pid")),
        tid=_number(record.get("tid")),
        ts_ns=ts_ns,
        dur_ns=dur_ns,
        args=args if isinstance(args, dict) else {},
        flow=as_identifier(record.get("id")),
    )


def _number(value: Any) -> int | str | float | None:
    """The number of a process or a thread; of one in a text, as viewers take it: rocprof names "2" what is in 2."""
    is_text = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < MOST_DIGITS
    return int(value) if is_text else as_identifier(value)


def load_records(path: str, member: str | None = None) -> tuple[list[dict[str, Any]], list[HealthNote]]:
    """Every object of a JSON file's list (object or list root, lines) without damaged ones; fractions as Decimal.

    The notes say what was left out. Raises NoUsableInput where there is no list of events.
    """
    label = f"{path}!{member}" if member else path
    decoder = msgspec.json.Decoder(list[Any], float_hook=Decimal)
    one = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)
    salvage: Salvager[dict[str, Any]] = Salvager(lambda text: _record(one.decode(text)), _record)
    values: list[Any] = []
    with open_blocks(path, member) as blocks:
        stream: EventStream[list[Any], Any] = EventStream(iter(blocks), decoder.decode, salvage)
        try:
            for batch in stream:
                values += batch
                if len(values) > MOST_EVENTS:
                    break
        except NoUsableInput as error:
            raise NoUsableInput(f"{label}: {error}") from error
        stream.damage.packing = blocks.damage
    records = [value for value in values[:MOST_EVENTS] if isinstance(value, dict)]
    return records, [*stream.damage.notes(label), *_left_out(label, len(values), len(records))]


def _record(value: dict[str, Any]) -> dict[str, Any] | None:
    """An object of damaged text if it has a time or a kind, as events do; else None."""
    return value if value.keys() & _MARKS else None


def _left_out(label: str, count: int, kept: int) -> list[HealthNote]:
    notes = []
    if count > MOST_EVENTS:
        issue = f"{label}: more than {MOST_EVENTS:,} events"
        notes.append(HealthNote(issue, "only the first of them are read; later ones are missing", "error"))
    elif kept < count:
        notes.append(HealthNote(f"{label}: {count - kept} events that are no objects", "left out"))
    return notes
