"""The whole run in a few hundred bins, for the map above the lanes: time of all ranks by cause, and the steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddprof.dashboard.numbers import Numbers
from ddprof.dashboard.timeline.lanes import Timeline
from ddprof.tables import Array

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
    most = max((len(of.marked) for of in timeline.steps), default=0)
    steps = [
        [number, min(float(of.start_ns[number]) for of in timeline.steps if number < len(of.marked)) / 1e3]
        for number in np.unique(np.linspace(0, most - 1, min(most, MAX_STEPS)).astype(int)).tolist()
    ]
    return {"bins": BINS, "shares": shares, "steps": steps}


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
