"""A slow rank's host given the pace of its peers, stretch by stretch between two communications.

A rank is rarely slow everywhere alike: what holds it (a hook, a layer, a neighbour that wakes at the same place) sits
somewhere in the step. Ranks meet at each collective, so time taken away in a stretch where this rank is last shortens
the step, and time taken away where it waits anyway does not. One factor for all of its work takes some of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.replay.host_pace import Scaled

from ddprof import intervals
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array

MAX_STRETCHES = 256  # per step; beyond it neighbours are taken together
MAX_FACTOR = 2.0  # a stretch in which the peers take longer grows by this much at most
FACTORS = 20  # told apart between 0 and 1; stretches of about one factor are scaled together


def peers_pace(slow: RankFacts, peers: Sequence[RankFacts], busy: Callable[[RankFacts], Intervals]) -> Scaled | None:
    """Parts of the rank's busy time, each with the factor that brings it to its peers' typical time.

    Typical: the lower median over peers of the median over their steps. None where ranks do not make the same number
    of calls in every step.
    """
    places = [place for facts in (slow, *peers) if (place := _places(facts)) is not None]
    if not peers or len(places) <= len(peers) or any(place.shape[1] != places[0].shape[1] for place in places):
        return None
    work = busy(slow)
    own = _times(work, places[0])
    others = [np.median(_times(busy(f), place), axis=0) for f, place in zip(peers, places[1:], strict=True)]
    typical = np.sort(np.array(others), axis=0)[(len(others) - 1) // 2]
    return _scaled(work, places[0], own, np.broadcast_to(typical, own.shape))


def balanced(ranks: Sequence[RankFacts], busy: Callable[[RankFacts], Intervals]) -> list[Scaled] | None:
    """For each rank the parts of its busy time, each with the factor that brings it to the ranks' mean, stretch by
    stretch in every step; None as in `peers_pace`.
    """
    places = [place for facts in ranks if (place := _places(facts)) is not None]
    if len(places) < len(ranks) or any(place.shape[1] != places[0].shape[1] for place in places):
        return None
    steps = min(len(place) for place in places)
    work = [busy(facts) for facts in ranks]
    own = np.array([_times(spans, place[:steps]) for spans, place in zip(work, places, strict=True)])
    mean = own.mean(axis=0)
    return [_scaled(spans, place[:steps], o, mean) for spans, place, o in zip(work, places, own, strict=True)]


def _scaled(work: Intervals, places: Array, own: Array, wanted: Array) -> Scaled:
    """Stretches of about one factor together; shapes (steps, stretches + 1), (steps, stretches) and the same."""
    wanted = np.minimum(wanted, MAX_FACTOR * own)
    level = np.rint(FACTORS * wanted / np.maximum(own, 1.0))
    scaled = []
    for value in np.unique(level[own > 0]):
        mine = (level == value) & (own > 0)
        stretches = places[:, :-1][mine], places[:, 1:][mine]
        scaled.append((intervals.intersect(work, stretches), float(wanted[mine].sum() / own[mine].sum())))
    return tuple(scaled)


def _places(facts: RankFacts) -> Array | None:
    """Where the stretches of each step begin and end, ns, shape (steps, stretches + 1).

    The step's own bounds, and the calls of communication between them; None where steps differ in how many they make or
    the trace does not show them.
    """
    calls = np.sort(facts.comms["launch_ns" if facts.is_device_rank else "start_ns"])
    lo, hi = facts.steps["start_ns"], facts.steps["end_ns"]
    first, last = np.searchsorted(calls, lo, side="left"), np.searchsorted(calls, hi, side="left")
    counts = last - first
    if not len(counts) or (counts != counts[0]).any() or (facts.is_device_rank and (calls == NULL).any()):
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
