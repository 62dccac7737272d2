"""One view of the timeline as bytes: exact slices for lanes with few, the busy share per pixel for lanes with many.

Layout, little-endian: b"DDT1", uint32 length of the JSON header, the header padded with spaces to 8 bytes, then in turn
exact slices: start float32[n] and duration float32[n] (us since the view's start), name uint32[n], row uint32[n],
category uint8[n] (padded to 8 bytes); binned lanes: dominant category uint8[lanes * bins], busy share of 255
uint8[lanes * bins].
Starts are relative to the view, because float32 microseconds since the run's start lose a microsecond after 16 s.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ddprof.dashboard.numbers import Numbers
from ddprof.dashboard.timeline.categories import LOOKS
from ddprof.dashboard.timeline.index import SliceIndex, step_count
from ddprof.dashboard.timeline.lanes import KINDS, Timeline
from ddprof.tables import Array

MAGIC = b"DDT1"
MAX_BINS = 4096  # pixels of the widest screens
EXACT_BUDGET = 20_000  # slices sent exactly in one view; above it a lane becomes bins (a canvas fills ~1 million/s)
MAX_LANES = 400  # more than fit on any screen
NAME_CHARS = 80
CELLS_AT_ONCE = 1_000_000  # bins of categories worked out together: some 50 MB of intermediate arrays


def encode(
    timeline: Timeline, lanes: Sequence[int], lo_ns: int, hi_ns: int, bins: int, budget: int = EXACT_BUDGET
) -> bytes:
    """The window [lo, hi) of some lanes. `budget`: slices sent exactly."""
    index, bins = timeline.index, min(bins, MAX_BINS)
    exact, binned = _divide(timeline, np.array(lanes[:MAX_LANES], np.int64), lo_ns, hi_ns, budget)
    rows = index.rows(index.groups_of(exact), lo_ns, hi_ns)
    category, share = _bins(index, binned, np.linspace(lo_ns, hi_ns, bins + 1).astype(np.int64))
    shown = np.unique(rows.name)
    counts = np.bincount(np.searchsorted(exact, rows.lane), minlength=len(exact))
    header = {
        "lo_ns": lo_ns,
        "hi_ns": hi_ns,
        "bins": bins,
        "exact": exact.tolist(),
        "counts": counts.tolist(),
        "binned": binned.tolist(),
        "names": {int(n): timeline.names[n][:NAME_CHARS] for n in shown},
    }
    arrays = (
        ((rows.start_ns - lo_ns) / 1e3).astype("<f4"),
        (rows.dur_ns / 1e3).astype("<f4"),
        rows.name.astype("<u4"),
        rows.row.astype("<u4"),
        np.concatenate((rows.category, np.zeros(-len(rows.category) % 8))).astype("u1"),  # padded
        category,
        share,
    )
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 8)
    return b"".join((MAGIC, struct.pack("<I", len(text)), text, *(np.ascontiguousarray(a).tobytes() for a in arrays)))


def _divide(timeline: Timeline, lanes: Array, lo_ns: int, hi_ns: int, budget: int) -> tuple[Array, Array]:
    """Lanes sent exactly and lanes sent as bins: lanes with the fewest slices are exact while the budget lasts.

    All lanes of a kind are sent alike: ranks are compared by eye, and the same work looks different in slices and bins.
    """
    index = timeline.index
    groups = index.groups_of(lanes)
    first, last = index.window(groups, lo_ns, hi_ns)
    counts = np.bincount(groups // index.categories, weights=last - first, minlength=index.lanes)[lanes]
    kinds = np.array([KINDS.index(timeline.lanes[lane].kind) for lane in lanes.tolist()], np.int64)
    of_kind = np.bincount(kinds, weights=counts, minlength=len(KINDS))
    order = np.argsort(of_kind, kind="stable")
    fits = np.zeros(len(KINDS), bool)
    fits[order] = np.cumsum(of_kind[order]) <= budget
    within = fits[kinds]
    return np.sort(lanes[within]), np.sort(lanes[~within])


def _bins(index: SliceIndex, lanes: Array, edges_ns: Array) -> tuple[Array, Array]:
    """Dominant category and busy share (0 to 255) of each bin, shape (lanes, bins); a few lanes at a time."""
    count, width = len(edges_ns) - 1, np.maximum(np.diff(edges_ns), 1)
    category, share = np.zeros((len(lanes), count), "u1"), np.zeros((len(lanes), count), "u1")
    at_once = max(1, CELLS_AT_ONCE // (index.categories * count))
    for first in range(0, len(lanes), at_once):
        some = lanes[first : first + at_once]
        groups = index.groups_of(some)
        busy = index.busy(groups, edges_ns)
        for line, lane in enumerate(some.tolist(), first):
            of_lane = np.flatnonzero(groups // index.categories == lane)
            if not len(of_lane):
                continue
            total = busy[of_lane].sum(axis=0)
            category[line] = (groups[of_lane] % index.categories)[busy[of_lane].argmax(axis=0)]
            # Whatever is there at all stays visible: a share above zero never rounds to zero.
            share[line] = np.where(total > 0, np.maximum(1, np.minimum(255, np.round(total / width * 255))), 0)
    return category, share


# The lanes themselves: ranks, labels, and colour, letter and texture of each category.

KIND_WORDS = {
    "causes": "where time goes",
    "steps": "steps",
    "phases": "phases",
    "host": "host",
    "stream": "device",
    "comm": "communication",
}


def timeline_info(timeline: Timeline, ranks: Numbers | None = None) -> dict[str, Any]:
    """Lanes of some ranks (None: all), the window in ns since the run's start, and the style of the categories."""
    lanes = [
        {"id": i, "rank": lane.rank, "host": lane.host, "kind": lane.kind, "label": lane.label, "slices": lane.slices}
        for i, lane in enumerate(timeline.lanes)
        if ranks is None or lane.rank in ranks
    ]
    used = {lane["kind"] for lane in lanes}
    return {
        "lanes": lanes,
        "lo_ns": timeline.index.lo_ns,
        "hi_ns": timeline.index.hi_ns,
        "slices": len(timeline.index),
        "steps": step_count(timeline.steps),
        "categories": [asdict(look) for look in LOOKS.values()],
        "kinds": [[kind, KIND_WORDS[kind]] for kind in KINDS if kind in used and kind in KIND_WORDS],
    }


# The whole run in a few hundred bins, for the map above the lanes: time of all ranks by cause, and the steps.

BINS = 600  # about one for two px of a wide screen
MAX_STEPS = 400  # marks that can still be told apart there


def overview(timeline: Timeline, ranks: Numbers | None = None) -> dict[str, Any]:
    """Share of the ranks' time in each bin, 0 to 255, by category; and number and start of steps, in us."""
    index, chosen = timeline.index, [ranks is None or lane.rank in ranks for lane in timeline.lanes]
    lanes = [n for n, lane in enumerate(timeline.lanes) if lane.kind == "causes" and chosen[n]]
    edges = np.linspace(index.lo_ns, index.hi_ns, BINS + 1)
    whole = np.diff(edges) * max(1, len(lanes))
    groups = index.groups_of(np.array(lanes, np.int64))
    category = groups % index.categories
    shares = {}
    for code in np.unique(category).tolist():
        rows = index.rows_of(groups[category == code])
        start = index.start_ns(rows)
        # Total length of all slices before each edge, overlapping or not.
        covered = np.diff(_reached(start, edges) - _reached(start + index.dur_ns(rows), edges))
        shares[code] = np.clip(np.ceil(covered / whole * 255), 0, 255).astype(int).tolist()
    # Number and start of steps on the rank that begins them first; evenly chosen ones of many.
    most = step_count(timeline.steps)
    begins_us = np.full(most, np.inf)
    for of in timeline.steps:
        begins_us[of.number] = np.minimum(begins_us[of.number], of.start_ns / 1e3)
    chosen = np.unique(np.linspace(0, most - 1, min(most, MAX_STEPS)).astype(int)).tolist()
    return {"bins": BINS, "shares": shares, "steps": [[number, float(begins_us[number])] for number in chosen]}


def _reached(since_ns: Array, at_ns: Array) -> Array:
    ordered = np.sort(since_ns).astype(np.float64)
    before = np.searchsorted(ordered, at_ns, side="right")
    total = np.concatenate(([0.0], np.cumsum(ordered - at_ns[0])))
    return np.asarray(before * (at_ns - at_ns[0]) - total[before])


def spots(start_ns: Array, end_ns: Array, lo_ns: int, hi_ns: int, bins: int) -> list[int]:
    """First and last bin of each run of bins that spans touch, flat: [first, last, first, last, ...]."""
    inside = (start_ns < hi_ns) & (end_ns > lo_ns)
    width = max(1, hi_ns - lo_ns)
    first = np.clip((start_ns[inside] - lo_ns) / width * bins, 0, bins - 1).astype(np.int64)
    last = np.clip((end_ns[inside] - 1 - lo_ns) / width * bins, 0, bins - 1).astype(np.int64)
    touched = np.zeros(bins + 1, np.int64)
    np.add.at(touched, first, 1)
    np.add.at(touched, last + 1, -1)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], (np.cumsum(touched[:-1]) > 0).astype(np.int8), [0]))))
    edges[1::2] -= 1
    return [int(edge) for edge in edges]
