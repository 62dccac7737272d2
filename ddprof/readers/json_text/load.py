"""Small event files as plain Python values, for formats whose files are small or need every argument."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from ddprof.errors import NoUsableInput
from ddprof.readers.files.streams import open_blocks
from ddprof.readers.json_text.salvage import Salvager
from ddprof.readers.json_text.stream import EventStream

_MARKS = {"ph", "ts", "type", "recordType"}  # of Chrome's format, and of NCCL's logs


def load_events(path: str, member: str | None = None) -> list[Any]:
    """Every event of a JSON file of any layout (object or list root, lines), damaged ones left out; floats as Decimal.

    Raises NoUsableInput where there is no list of events.
    """
    decoder = msgspec.json.Decoder(list[Any], float_hook=Decimal)
    one = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)
    salvage: Salvager[dict[str, Any]] = Salvager(lambda text: _event(one.decode(text)), _event)
    with open_blocks(path, member) as blocks:
        stream: EventStream[list[Any], Any] = EventStream(iter(blocks), decoder.decode, salvage)
        try:
            return [event for batch in stream for event in batch]
        except NoUsableInput as error:
            raise NoUsableInput(f"{path}: {error}") from error


def _event(value: dict[str, Any]) -> dict[str, Any] | None:
    """What a damaged text holds is an event if it says when it was, or what it is."""
    return value if value.keys() & _MARKS else None


def argument(event: dict[str, Any], name: str) -> Any:
    """One argument of an event; None where it has none, or where its arguments are not an object."""
    args = event.get("args")
    return args.get(name) if isinstance(args, dict) else None
