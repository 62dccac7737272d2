"""A slow CPU rank given the pace of its peers, stretch by stretch between two communications.

A rank is rarely slow everywhere alike: what holds it (a hook, a layer, a neighbour that wakes at the same place) sits
somewhere in the step. Ranks meet at each collective, so time taken away in a stretch where this rank is last shortens
the step, and time taken away where it waits anyway does not. One factor for all of its work takes some of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from ddprof.analyzers.facts.model import RankFacts

from ddprof import intervals
from ddprof.intervals import Intervals
from ddprof.tables import Array

MAX_STRETCHES = 256  # per step; beyond it neighbours are taken together
MAX_FACTOR = 2.0  # a stretch in which the peers take longer grows by this much at most

Scaled = tuple[tuple[Intervals, float], ...]


def as_peers(slow: RankFacts, peers: Sequence[RankFacts], busy: Callable[[RankFacts], Intervals]) -> Scaled | None:
    """Parts of the rank's busy time, each with the factor that brings it to its peers' typical time (lower median).

    Medians over steps on both sides. None where the ranks do not make the same number of calls in every step.
    """
    places = [_places(facts) for facts in (slow, *peers)]
    if not peers or any(place is None or place.shape[1] != _width(places[0]) for place in places):
        return None
    own, *others = [
        np.median(_times(busy(facts), place), axis=0)
        for facts, place in zip((slow, *peers), places, strict=True)
        if place is not None
    ]
    typical = np.sort(np.array(others), axis=0)[(len(others) - 1) // 2]
    factor = np.ones(len(own))
    np.divide(typical, own, out=factor, where=own > 0)
    factor = np.minimum(factor, MAX_FACTOR)
    mine = places[0]
    work = busy(slow)
    if mine is None:
        return None
    return tuple(
        (_within(work, mine[:, at], mine[:, at + 1]), float(factor[at])) for at in range(len(factor)) if own[at] > 0
    )


def _width(place: Array | None) -> int:
    return -1 if place is None else place.shape[1]


def _places(facts: RankFacts) -> Array | None:
    """Where the stretches of each step begin and end, ns, shape (steps, stretches + 1).

    The step's own bounds, and the calls of communication between them; None where steps differ in how many they make.
    """
    calls = np.sort(facts.comms["start_ns"])
    lo, hi = facts.steps["start_ns"], facts.steps["end_ns"]
    first, last = np.searchsorted(calls, lo, side="left"), np.searchsorted(calls, hi, side="left")
    counts = last - first
    if not len(counts) or (counts != counts[0]).any():
        return None
    inner = calls[first[:, None] + np.arange(counts[0])[None, :]]
    bounds = np.concatenate((lo[:, None], inner, hi[:, None]), axis=1)
    stride = -(-(bounds.shape[1] - 1) // MAX_STRETCHES)
    kept = np.append(np.arange(0, bounds.shape[1] - 1, stride), bounds.shape[1] - 1)
    return np.asarray(bounds[:, kept])


def _times(busy: Intervals, places: Array) -> Array:
    """Busy time in each stretch, ns, shape (steps, stretches)."""
    covered = intervals.covered(busy, places.ravel()).reshape(places.shape)
    return np.asarray(np.diff(covered, axis=1), float)


def _within(work: Intervals, lo_ns: Array, hi_ns: Array) -> Intervals:
    return intervals.intersect(work, (lo_ns, hi_ns))
