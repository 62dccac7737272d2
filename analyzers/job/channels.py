"""Groups of communications whose trace does not name them (old profilers, no arguments).

Each communicator has a stream of its own, so a stream is a channel. Two ranks belong to one group on a channel if their
nth operations end together up to one constant, the difference of their clocks: members of a synchronising collective
leave together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.names import POINT_TO_POINT

from ddprof.tables import Array

# Ends of members agree within tens of microseconds; those of strangers drift apart by whole kernels.
TOGETHER_NS = 60_000
MIN_SHARED = 3  # operations before coincidence means anything


def nameless_groups(ranks: Sequence[RankFacts]) -> dict[tuple[int, int], tuple[int, ...]]:
    """(rank position, track) -> rank numbers of the inferred group, for channels on which inference succeeds."""
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    channels = [_channels(facts) for facts in ranks]
    if len(ranks) < 3 or not channels[0] or len({len(c) for c in channels}) > 1:
        return found
    for index in range(len(channels[0])):
        ends = [channels[p][index][1] for p in range(len(ranks))]
        if len({len(e) for e in ends}) > 1 or len(ends[0]) < MIN_SHARED:
            continue
        clusters = _clusters(np.stack(ends), [f.identity.host for f in ranks])
        if len(clusters) == len(ranks):
            continue  # nobody coincides with anybody: the channel tells nothing
        for cluster in clusters:
            numbers = tuple(sorted(ranks[p].identity.rank or 0 for p in cluster))
            for p in cluster:
                found[p, channels[p][index][0]] = numbers
    return found


def _channels(facts: RankFacts) -> list[tuple[int, Array]]:
    """(track, ends in order) of each stream that carries nameless collectives, by stream order."""
    comms = facts.comms
    mine = np.flatnonzero((comms["group"] == NO_STRING) & ~np.isin(comms["op"], POINT_TO_POINT))
    if not len(mine) or not facts.is_device_rank:
        return []
    track = facts.device_ops["track"][comms["device_op"][mine]]
    return [(int(t), np.sort(comms["end_ns"][mine[track == t]])) for t in np.unique(track)]


def _clusters(ends: Array, hosts: Sequence[str | None]) -> list[list[int]]:
    """Ranks whose ends (shape (ranks, operations)) differ by a constant; by nothing at all where they share a host's
    clock.
    """
    left = list(range(len(ends)))
    clusters = []
    while left:
        first = left[0]
        difference = ends[left] - ends[first]
        spread = np.median(np.abs(difference - np.median(difference, axis=1, keepdims=True)), axis=1)
        apart = np.abs(np.median(difference, axis=1))
        members = [
            p
            for p, s, a in zip(left, spread, apart, strict=True)
            if s <= TOGETHER_NS and (a <= TOGETHER_NS or hosts[p] is None or hosts[p] != hosts[first])
        ]
        clusters.append(members)
        left = [p for p in left if p not in members]
    return clusters
