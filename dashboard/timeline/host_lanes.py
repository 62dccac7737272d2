"""Lanes of all host activity of a rank: operators nested by depth, on each thread, and the loader's workers.

Facts keep no operators (they are most of a trace), so the trace of the rank is read again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.dashboard.timeline.index import Slices
from ddprof.model import Kind, RankTrace
from ddprof.report.phrases import clean
from ddprof.tables import NULL, Array, Table

MAX_DEPTH = 40  # rows of a thread; Python stacks beyond it are cut and the lane says so
WORKER_WORDS = "DataLoader worker"
# Category of the timeline for each kind of host event (lanes.EXTRA).
CATEGORY_OF = {
    Kind.CPU_OP: "operator",
    Kind.ANNOTATION: "range",
    Kind.RUNTIME: "runtime",
    Kind.PYTHON: "frame",
    Kind.SYNC: "runtime",
    Kind.OTHER: "worker",
}
MAX_NAME_CHARS = 60  # of a thread or stream


def host_lanes(trace: RankTrace, codes: Array, category: dict[str, int]) -> Iterator[tuple[str, str, Slices]]:
    """(kind, label, slices) of each row, threads in order of their busy time; times on the rank's own clock.

    `codes`: name of the timeline for each string of the trace; `category`: code of each category.
    """
    events = trace.events
    lookup = np.full(max(Kind) + 1, -1, np.int64)
    for kind, name in CATEGORY_OF.items():
        lookup[kind] = category[name]
    on_host = trace.tracks["device"][events["track"]] == NULL
    kept = np.flatnonzero(on_host & (lookup[events["kind"]] >= 0) & (events["dur_ns"] > 0))
    tracks, which = np.unique(events["track"][kept], return_inverse=True)
    busy_ns = np.bincount(which, weights=events["dur_ns"][kept])
    for row in np.argsort(-busy_ns, kind="stable").tolist():
        yield from _thread(trace, kept[which == row], int(tracks[row]), codes, lookup)


def _thread(
    trace: RankTrace, event_rows: Array, track: int, codes: Array, lookup: Array
) -> Iterator[tuple[str, str, Slices]]:
    events = trace.events
    start, end = events["ts_ns"][event_rows], events["ts_ns"][event_rows] + events["dur_ns"][event_rows]
    words = thread_words(trace.tracks, track)
    is_worker = words.startswith(WORKER_WORDS)
    rows = disjoint_rows(start, end)
    for depth, row in enumerate(rows[:MAX_DEPTH]):
        of = event_rows[row]
        label = words if not depth else f"  depth {depth + 1}"
        if depth == MAX_DEPTH - 1 and len(rows) > MAX_DEPTH:
            label += f" of {len(rows)}"
        kind, name = lookup[events["kind"][of]], codes[events["name"][of]]
        part = Slices(start[row], end[row], kind, name, np.full(len(of), NULL))
        yield ("workers" if is_worker else "ops"), label, part


def disjoint_rows(start_ns: Array, end_ns: Array) -> list[Array]:
    """Indices of the spans of each row, outermost first; as many rows as spans run at once."""
    left = np.lexsort((-end_ns, start_ns))
    rows = []
    while len(left):
        chain = _first_fit(start_ns[left], end_ns[left])
        rows.append(left[chain])
        left = left[~chain]
    return rows


def _first_fit(start_ns: Array, end_ns: Array) -> Array:
    """Mask of spans, sorted by start, that can share a row: each begins at or after the end of the previous one."""
    taken = np.zeros(len(start_ns), bool)
    if not np.any(start_ns[1:] < end_ns[:-1]):
        taken[:] = True
        return taken
    following = np.maximum(np.searchsorted(start_ns, end_ns, side="left"), np.arange(1, len(start_ns) + 1)).tolist()
    at = 0
    while at < len(start_ns):
        taken[at] = True
        at = following[at]
    return taken


def thread_words(tracks: Table, track: int) -> str:
    """Name and number of a host thread, a row of TRACKS."""
    if not 0 <= track < len(tracks):
        return "thread not recorded"
    name, tid = clean(str(tracks["name"][track]))[:MAX_NAME_CHARS], clean(str(tracks["tid"][track]))
    return f"{name} (thread {tid})" if name and tid not in name.split() else name or f"thread {tid}"


def stream_words(tracks: Table, track: int) -> str:
    """Number of a stream, a row of TRACKS, with its device where the rank has several."""
    if not 0 <= track < len(tracks):
        return "stream not recorded"
    devices = np.unique(tracks["device"][tracks["device"] != NULL])
    number = int(tracks["stream"][track])
    words = f"stream {number}" if number != NULL else f"stream {clean(str(tracks['tid'][track]))[:MAX_NAME_CHARS]}"
    return words if len(devices) < 2 else f"device {int(tracks['device'][track])} {words}"
