"""Launches of a trace in Chrome's format, by the arrows that lead from calls of the host to the work of a device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ddprof.readers.json_text.load import TimelineEvent
from ddprof.tables import NULL, Array

_NESTED = 16  # spans inside a call that ended before the arrow begins
_Track = tuple[Any, Any]


def launches(events: Sequence[TimelineEvent], spans: Sequence[TimelineEvent], devices: Collection[Any]) -> Array:
    """A number per span that a call shares with the work that it launched; NULL for others.

    Of several arrows into one piece of work the last to begin counts: an operator's begins before that of its call.
    """
    correlation = np.full(len(spans), NULL, np.int64)
    begins = {(e.category, e.flow): e for e in events if e.ph == "s" and e.pid not in devices}
    work = {(span.pid, span.tid, span.ts_ns): at for at, span in enumerate(spans) if span.pid in devices}
    ends: dict[int, TimelineEvent] = {}
    for arrow in events:
        if arrow.ph != "f" or (at := work.get((arrow.pid, arrow.tid, arrow.ts_ns))) is None:
            continue
        begin = begins.get((arrow.category, arrow.flow))
        if begin is not None and (at not in ends or ends[at].ts_ns < begin.ts_ns):
            ends[at] = begin
    if not ends:
        return correlation
    lines = _lines(spans, devices)
    for at, begin in ends.items():
        starts, rows = lines.get((begin.pid, begin.tid), (np.empty(0, np.int64), []))
        place = int(np.searchsorted(starts, begin.ts_ns, "right"))
        before = reversed(rows[max(0, place - _NESTED) : place])
        call = next((row for row in before if begin.ts_ns <= spans[row].ts_ns + spans[row].dur_ns), None)
        if call is not None:
            correlation[at] = correlation[call] = call + 1
    return correlation


def _lines(spans: Sequence[TimelineEvent], devices: Collection[Any]) -> dict[_Track, tuple[Array, list[int]]]:
    """Starts and numbers of the host's spans by track, in order."""
    lines: dict[_Track, list[int]] = defaultdict(list)
    for at in sorted(range(len(spans)), key=lambda at: spans[at].ts_ns):
        if spans[at].pid not in devices:
            lines[spans[at].pid, spans[at].tid].append(at)
    return {track: (np.array([spans[at].ts_ns for at in rows]), rows) for track, rows in lines.items()}
