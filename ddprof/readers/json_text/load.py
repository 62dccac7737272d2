"""Small event files as plain Python values, for formats whose files are small or need every argument."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from ddprof.errors import NoUsableInput
from ddprof.readers.files.streams import open_blocks
from ddprof.readers.json_text.salvage import Salvage, salvage_events
from ddprof.readers.json_text.stream import EventStream


def load_events(path: str, member: str | None = None) -> list[Any]:
    """Every event of a JSON file of any layout (object or list root, lines), damaged ones left out; floats as Decimal.

    Raises NoUsableInput where there is no list of events.
    """
    decoder = msgspec.json.Decoder(list[Any], float_hook=Decimal)

    def salvage(text: bytes) -> Salvage[Any]:
        return salvage_events(text, lambda value: value)

    with open_blocks(path, member) as blocks:
        stream: EventStream[list[Any], Any] = EventStream(iter(blocks), decoder.decode, salvage)
        try:
            return [event for batch in stream for event in batch]
        except NoUsableInput as error:
            raise NoUsableInput(f"{path}: {error}") from error


def argument(event: dict[str, Any], name: str) -> Any:
    """One argument of an event; None where it has none, or where its arguments are not an object."""
    args = event.get("args")
    return args.get(name) if isinstance(args, dict) else None
