"""The time stamp of a log line, in the formats of loggers and collectors."""

from __future__ import annotations

import re
from calendar import timegm
from datetime import MINYEAR
from typing import NamedTuple

_STAMP = re.compile(
    r"(?:(?P<y>\d{4})[-/]?(?P<m>\d\d)[-/]?(?P<d>\d\d)|(?P<m2>\d\d)/(?P<d2>\d\d)/(?P<y2>\d{4}))[ T]"
    r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?"
)


class Stamp(NamedTuple):
    """A clock reading and its resolution, in seconds."""

    s: float
    grain_s: float


def stamp_of(text: str) -> Stamp | None:
    """The last time stamp in a text; None without one. Time zones are ignored: only differences are used."""
    if ":" not in text or not (matches := list(_STAMP.finditer(text))):
        return None
    match = matches[-1]
    year, month, day = (match[part] or match[f"{part}2"] for part in ("y", "m", "d"))
    if not (int(year) >= MINYEAR and 1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return None
    whole = timegm((int(year), int(month), int(day), int(match["hour"]), int(match["minute"]), int(match["second"])))
    part = match["part"] or ""
    return Stamp(whole + (int(part) / 10 ** len(part) if part else 0.0), 10.0 ** -len(part))
