"""The host time of a slow rank brought to that of its peers, segment by segment.

A segment lies between two calls of communication or phase boundaries. A rank is rarely slow everywhere: the reason (a
hook, a layer, a neighbour process) is at one place of the step. Ranks meet at each collective, so time saved in a
segment before which the others wait for this rank shortens the step, and time saved where it waits itself does not. One
factor for all of its work would take some of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import called_ns
from ddprof.analyzers.replay.host_time import Scaled
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array

MAX_SEGMENTS = 256  # per step; beyond it neighbours are joined
MAX_FACTOR = 2.0  # by which a segment grows at most, where the peers take longer
LEVELS = 20  # factors told apart between 0 and 1: segments of one level are scaled together


def scaled_to_peers(
    slow: RankFacts, peers: Sequence[RankFacts], busy: Callable[[RankFacts], Intervals]
) -> Scaled | None:
    """Parts of the slow rank's busy time, each with the factor that brings a segment to its peers' typical time.

    Typical: the lower median over peers of the median over their steps. None where ranks do not make the same number
    of calls in every step.
    """
    places = _places([slow, *peers]) if peers else None
    if places is None:
        return None
    work = busy(slow)
    times = _times(work, places[0])
    others = [np.median(_times(busy(f), place), axis=0) for f, place in zip(peers, places[1:], strict=True)]
    typical = averages.typical_row(np.array(others))
    return _scaled(work, places[0], times, np.broadcast_to(typical, times.shape))


def device_factors(ranks: Sequence[RankFacts], issued_ns: Sequence[Array], dur_ns: Sequence[Array]) -> Array | None:
    """Factor, at most 1, for each operation of the first rank's device that brings its segment's compute to the other
    ranks' typical time in that segment and step; None as in `scaled_to_peers`.

    `issued_ns`, `dur_ns`: of each rank's operations; other work than compute has duration 0.
    """
    compared = _device_times(ranks, issued_ns, dur_ns)
    if compared is None:
        return None
    segments, (times, *others) = compared
    usual = averages.typical_row(np.array(others))
    return np.asarray(np.minimum(1.0, usual / np.maximum(times, 1.0))[segments[0]])


def device_factors_to_mean(
    ranks: Sequence[RankFacts], issued_ns: Sequence[Array], dur_ns: Sequence[Array]
) -> list[Array] | None:
    """Factors for each rank's operations that bring a segment's compute to the ranks' mean in the same step; arguments
    and None as in `device_factors`.
    """
    compared = _device_times(ranks, issued_ns, dur_ns)
    if compared is None:
        return None
    segments, times = compared
    factors = np.mean(times, axis=0) / np.maximum(times, 1.0)
    return [factor[segment] for factor, segment in zip(factors, segments, strict=True)]


def _device_times(
    ranks: Sequence[RankFacts], issued_ns: Sequence[Array], dur_ns: Sequence[Array]
) -> tuple[list[Array], list[Array]] | None:
    """Segment of every operation of each rank, and compute of every segment, ns; None where segments differ."""
    places = _places(ranks)
    if places is None:
        return None
    steps = min(len(place) for place in places)
    segments = [_segment_of(place[:steps], issued) for place, issued in zip(places, issued_ns, strict=True)]
    count = max(1, steps * (places[0].shape[1] - 1))
    return segments, [np.bincount(s, weights=d, minlength=count) for s, d in zip(segments, dur_ns, strict=True)]


def _segment_of(place: Array, issued_ns: Array) -> Array:
    """Index of the segment, over all steps, in which each operation was launched."""
    return np.maximum(np.searchsorted(place[:, :-1].ravel(), issued_ns, side="right") - 1, 0)


def scaled_to_mean(ranks: Sequence[RankFacts], busy: Callable[[RankFacts], Intervals]) -> list[Scaled] | None:
    """Parts of each rank's busy time, each with the factor that brings a segment to the ranks' mean in the
    same step; None as in `scaled_to_peers`.
    """
    places = _places(ranks)
    if places is None:
        return None
    steps = min(len(place) for place in places)
    work = [busy(facts) for facts in ranks]
    times = np.array([_times(spans, place[:steps]) for spans, place in zip(work, places, strict=True)])
    mean = times.mean(axis=0)
    return [_scaled(spans, place[:steps], o, mean) for spans, place, o in zip(work, places, times, strict=True)]


def _scaled(work: Intervals, places: Array, times: Array, wanted: Array) -> Scaled:
    """Segments of one level together; shapes: places (steps, segments + 1), own and wanted ns (steps, segments)."""
    wanted = np.minimum(wanted, MAX_FACTOR * times)
    level = np.rint(LEVELS * wanted / np.maximum(times, 1.0))
    scaled = []
    for value in np.unique(level[times > 0]):
        of_level = (level == value) & (times > 0)
        segments = places[:, :-1][of_level], places[:, 1:][of_level]
        scaled.append((intervals.intersect(work, segments), float(wanted[of_level].sum() / times[of_level].sum())))
    return tuple(scaled)


def _places(ranks: Sequence[RankFacts]) -> list[Array] | None:
    """Bounds of each step's segments on each rank, ns, shape (steps, segments + 1).

    Bounds are step marks, calls of communication and bounds of phases. Phases are omitted where their order differs
    between steps or ranks; None where the calls' order does too.
    """
    none = np.empty(0, np.int64)
    for bounds in ([_phase_bounds(facts) for facts in ranks], [(none, none)] * len(ranks)):
        bounded = [_bounds_in_steps(facts, *own) for facts, own in zip(ranks, bounds, strict=True)]
        comparable = [each for each in bounded if each is not None]
        if len(comparable) == len(ranks) and all(np.array_equal(kinds, comparable[0][1]) for _, kinds in comparable):
            return [places for places, _ in comparable]
    return None


def _phase_bounds(facts: RankFacts) -> tuple[Array, Array]:
    """Starts and ends of phases (ns), and a number above 0 for each kind of bound (0 is a call)."""
    phase = facts.phases["phase"].astype(np.int64)
    when = np.concatenate((facts.phases["start_ns"], facts.phases["end_ns"]))
    return when, np.concatenate((1 + 2 * phase, 2 + 2 * phase))


def _bounds_in_steps(facts: RankFacts, when: Array, which: Array) -> tuple[Array, Array] | None:
    """Places of one rank, and the kind of each bound between two segments of a step; None where steps differ."""
    calls = called_ns(facts)
    if (calls == NULL).any():
        return None
    bounds, kinds = np.concatenate((calls, when)), np.concatenate((np.zeros(len(calls), np.int64), which))
    order = np.argsort(bounds, kind="stable")
    bounds, kinds = bounds[order], kinds[order]
    lo, hi = facts.marks
    first, last = np.searchsorted(bounds, lo, side="left"), np.searchsorted(bounds, hi, side="left")
    counts = last - first
    if not len(counts) or (counts != counts[0]).any():
        return None
    inside = first[:, None] + np.arange(counts[0])[None, :]
    if (kinds[inside] != kinds[inside][0]).any():
        return None
    places = np.concatenate((lo[:, None], bounds[inside], hi[:, None]), axis=1)
    stride = -(-(places.shape[1] - 1) // MAX_SEGMENTS)
    kept = np.append(np.arange(0, places.shape[1] - 1, stride), places.shape[1] - 1)
    return np.asarray(places[:, kept]), kinds[inside][0] if len(inside) else kinds


def _times(busy: Intervals, places: Array) -> Array:
    """Busy time in each segment, ns, shape (steps, segments)."""
    covered = intervals.covered(busy, places.ravel()).reshape(places.shape)
    return np.asarray(np.diff(covered, axis=1), float)
