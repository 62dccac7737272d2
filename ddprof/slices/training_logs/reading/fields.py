"""Number or time of a field of a log line."""

from __future__ import annotations

from ddprof.readers.numbers import one_float

MOST_MS = 1e9  # twelve days: no iteration, and no part of one


def number(value: str | None) -> float | None:
    """The number in a value, or before its slash ("6210.4/6200.3": of this iteration / mean)."""
    return None if value is None else one_float(value.split("/", 1)[0])


def time_ms(value: str | None, each_ms: float = 1.0, most_ms: float = MOST_MS) -> float | None:
    """Milliseconds of a value in units of `each_ms`; None where it is no time, or so long that the line is damaged."""
    given = number(value)
    return given * each_ms if given is not None and 0 <= given < most_ms / each_ms else None
