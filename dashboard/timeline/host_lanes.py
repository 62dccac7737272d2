"""Lanes of everything a rank's host did: operators nested by depth, on each thread, and the loader's workers.

Facts keep no operators (they are most of a trace), so the trace of the rank is read again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.dashboard.timeline.index import Slices
from ddprof.dashboard.timeline.lane_names import thread_words
from ddprof.dashboard.timeline.rows import disjoint_rows
from ddprof.model import Kind, RankTrace
from ddprof.tables import NULL, Array

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
    for track in _by_busy_time(events["track"][kept], events["dur_ns"][kept]):
        mine = kept[events["track"][kept] == track]
        yield from _thread(trace, mine, track, codes, lookup)


def _by_busy_time(track: Array, dur_ns: Array) -> list[int]:
    found, inverse = np.unique(track, return_inverse=True)
    busy = np.bincount(inverse, weights=dur_ns)
    return [int(t) for t in found[np.argsort(-busy, kind="stable")]]


def _thread(
    trace: RankTrace, mine: Array, track: int, codes: Array, lookup: Array
) -> Iterator[tuple[str, str, Slices]]:
    events = trace.events
    start, end = events["ts_ns"][mine], events["ts_ns"][mine] + events["dur_ns"][mine]
    words = _words(trace, track)
    is_worker = words.startswith(WORKER_WORDS)
    rows = disjoint_rows(start, end)
    for depth, row in enumerate(rows[:MAX_DEPTH]):
        of = mine[row]
        label = words if not depth else f"  depth {depth + 1}"
        if depth == MAX_DEPTH - 1 and len(rows) > MAX_DEPTH:
            label += f" of {len(rows)}"
        part = Slices(
            start[row], end[row], lookup[events["kind"][of]], codes[events["name"][of]], np.full(len(of), NULL)
        )
        yield ("workers" if is_worker else "ops"), label, part


def _words(trace: RankTrace, track: int) -> str:
    return thread_words(trace.tracks, track)
