"""JSON lists of events, decoded: scanned into columns where the native scanner can, by msgspec where it cannot."""

from __future__ import annotations

from decimal import Decimal

import msgspec

from ddprof.readers.json_text.salvage import Salvage, Salvager
from ddprof.readers.json_text.scanned import Block, Scanner
from ddprof.readers.json_text.trace_event import Event, event_from_json

_LIST = list[Event | None]
_ONE = msgspec.json.Decoder(Event, float_hook=Decimal)


def _one_event(text: bytes) -> Event | None:
    """An event; None where the text is another object. Raises msgspec.DecodeError or UnicodeDecodeError."""
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
