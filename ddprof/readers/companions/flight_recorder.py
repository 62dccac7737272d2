"""The flight recorder's dump of a rank: JSON, or a pickle of plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ddprof.errors import NoUsableInput
from ddprof.model import HealthNote
from ddprof.readers.files.opening import one_line
from ddprof.readers.files.safe_pickle import UnsafePickle, load_plain
from ddprof.readers.files.streams import read_small


def read_flight_recorder(path: str | None) -> tuple[tuple[Mapping[str, Any], ...], list[HealthNote]]:
    """The entries of a dump; () and a note where the file cannot be used."""
    if path is None:
        return (), []
    try:
        value = load_dump(read_small(path))
    except (ValueError, NoUsableInput, UnsafePickle) as error:
        effect = "collectives are matched by order where the trace has no sequence numbers"
        return (), [HealthNote(f"{path}: not usable ({one_line(error)})", effect)]
    return entries(value), []


def load_dump(content: bytes) -> Mapping[str, Any]:
    """A flight-recorder dump, JSON or pickle (plain values only). Raises ValueError or UnsafePickle."""
    value = json.loads(content) if content.lstrip()[:1] == b"{" else load_plain(content)
    if not isinstance(value, dict):
        raise ValueError("not a flight-recorder dump")
    return value


def entries(dump: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The collectives of a dump, oldest first."""
    found = dump.get("entries")
    return tuple(e for e in found if isinstance(e, dict)) if isinstance(found, list) else ()
