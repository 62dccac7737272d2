"""Groups of communications whose trace does not name them (old profilers, no arguments).

Each communicator has a stream of its own, so a stream is a channel. Streams of two ranks are one channel if they carry
the same: their order in the files depends on where the window opened. Two ranks belong to one group on a channel if
their nth operations end together up to one constant, the difference of their clocks: members of a synchronising
collective leave together. The nth of a step, where steps are numbered: windows may have opened a step apart, and files
may lack some.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.names import POINT_TO_POINT
from ddprof.tables import NULL, Array

# Ends of members agree within tens of microseconds; those of strangers drift apart by whole kernels.
TOGETHER_NS = 60_000
ALWAYS_TOGETHER_NS = 10_000  # jitter of the ends of one collective; below it nobody is a stranger
SPREADS_OF_CLOSEST = 4.0  # a member's distance may vary so much more than that of the closest one
MIN_SHARED = 3  # operations before coincidence means anything


def nameless_groups(ranks: Sequence[RankFacts]) -> dict[tuple[int, int], tuple[int, ...]]:
    """(rank position, track) -> rank numbers of the inferred group, for channels on which inference succeeds."""
    groups: dict[tuple[int, int], tuple[int, ...]] = {}
    channels = [_channels(facts) for facts in ranks]
    if len(ranks) < 3 or not channels[0] or len({len(c) for c in channels}) > 1:
        return groups
    for index in range(len(channels[0])):
        ends = _shared([channels[p][index][1:] for p in range(len(ranks))])
        fewest = min(map(len, ends))
        if fewest < MIN_SHARED:
            continue
        hosts = [f.identity.host for f in ranks]
        clusters = _clusters(np.stack([each[:fewest] for each in ends]), hosts)
        if any(len(each) > fewest for each in ends):  # windows opened apart: the last that all recorded are the same
            closing = _clusters(np.stack([each[len(each) - fewest :] for each in ends]), hosts)
            clusters = min(clusters, closing, key=len)
        if len(clusters) == len(ranks):
            continue  # nobody coincides with anybody: the channel tells nothing
        for cluster in clusters:
            numbers = tuple(sorted(ranks[p].identity.rank or 0 for p in cluster))
            for p in cluster:
                groups[p, channels[p][index][0]] = numbers
    return groups


def _channels(facts: RankFacts) -> list[tuple[int, Array, Array]]:
    """(track, sorted ends, step number of each) of every stream with nameless collectives, sorted by kinds of
    operations, their number in the usual step, and stream order.

    Numbers are NULL outside all steps and where the profiler has not numbered them.
    """
    comms = facts.comms
    rows = np.flatnonzero((comms["group"] == NO_STRING) & (comms["device_op"] != NULL))
    rows = rows[~np.isin(comms["op"][rows], POINT_TO_POINT)] if len(rows) else rows
    if not len(rows):
        return []
    rows = rows[np.argsort(comms["end_ns"][rows], kind="stable")]
    track, step = comms["track"][rows], _numbers(facts, rows)
    carried = {
        int(t): (tuple(np.unique(comms["op"][rows[track == t]]).tolist()), _usual_count(step[track == t]), int(t))
        for t in np.unique(track)
    }
    return [(t, comms["end_ns"][rows[track == t]], step[track == t]) for t in sorted(carried, key=carried.__getitem__)]


def _usual_count(step: Array) -> float:
    """Operations of a stream in its most usual numbered step; 0 without any."""
    counts = np.unique(step[step != NULL], return_counts=True)[1]
    return float(np.median(counts)) if len(counts) else 0.0


def _numbers(facts: RankFacts, rows: Array) -> Array:
    """Number of the step that launched each communication; NULL where unknown."""
    if facts.step_source != "profiler_step":
        return np.full(len(rows), NULL)
    step = intervals.row_at(facts.marks, facts.comms["launch_ns"][rows])
    return np.append(facts.steps["index"], NULL)[step]  # row -1 is none


def _shared(channels: Sequence[tuple[Array, Array]]) -> list[Array]:
    """Ends of one channel's operations, (ends, steps) per rank, in the steps with equal counts on all ranks; all
    operations where there is no such step.
    """
    counts = [dict(zip(*np.unique(step[step != NULL], return_counts=True), strict=True)) for _, step in channels]
    alike = [n for n, count in counts[0].items() if all(other.get(n) == count for other in counts[1:])]
    if not alike:
        return [ends for ends, _ in channels]
    return [ends[np.isin(step, alike)] for ends, step in channels]


def _clusters(ends: Array, hosts: Sequence[str | None]) -> list[list[int]]:
    """Clusters of ranks whose ends (shape (ranks, operations)) differ by a constant, 0 on one host.

    The closest join first, and every member must fit every other: of two ranks on another host at a constant distance,
    only one leaves at the same time.
    """
    left = list(range(len(ends)))
    clusters = []
    while left:
        first = left[0]
        members = [first]
        closest = sorted(left[1:], key=lambda p: _spread(ends[p] - ends[first]))
        limit = float(TOGETHER_NS)
        if closest:
            limit = min(limit, max(ALWAYS_TOGETHER_NS, SPREADS_OF_CLOSEST * _spread(ends[closest[0]] - ends[first])))
        for p in closest:
            if all(_together(ends[p] - ends[q], hosts[p], hosts[q], limit) for q in members):
                members.append(p)
        clusters.append(sorted(members))
        left = [p for p in left if p not in members]
    return clusters


def _spread(difference_ns: Array) -> float:
    return float(np.median(np.abs(difference_ns - np.median(difference_ns))))


def _together(difference_ns: Array, host: str | None, other: str | None, limit_ns: float) -> bool:
    if _spread(difference_ns) > limit_ns:
        return False
    return abs(float(np.median(difference_ns))) <= limit_ns or host is None or host != other
