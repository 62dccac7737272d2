"""Number of a field of a log line."""

from __future__ import annotations

from ddprof.readers.numbers import one_float


def number(value: str | None) -> float | None:
    """The number in a value, or before its slash ("6210.4/6200.3": of this iteration / mean)."""
    return None if value is None else one_float(value.split("/", 1)[0])
