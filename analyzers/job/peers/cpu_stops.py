"""Interruptions of CPU ranks, from the recording alone.

Ranks of one program run the same operators in the same order in every step. An operator that takes a scheduler slice
longer than in other steps and ranks was interrupted; so was Python between two operators. Interruptions fall anywhere:
what takes longer in most steps of a rank is its program or machine, unless it usually outlasts such a slice: a busy
machine stops that every time, and how fast the rank is its short operators tell. Python that delays a rank for longer
than any operator of the job was interrupted is its program too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ddprof import averages, intervals
from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.work import free_host
from ddprof.tables import Array, distinct

# The shortest slice of Linux's scheduler for which another thread has the core: 0.7 ms x (1 + log2(cores)), on two.
MIN_STOP_NS = 1_400_000
MIN_OCCURRENCES = 3  # of an operator on a rank; fewer have no usual time
MIN_TIMES = 2  # what came once may not come again
MOST_SHARE = 0.5  # of its occurrences on a rank: an operator that takes longer more often is slow, and not stopped
Operator = tuple[str, ...]  # name and shapes, "" where they were not recorded


class CpuStops(Struct, frozen=True):
    """Stopped time of each rank in its steps, ns; arrays of shape (ranks,)."""

    total_ns: Array
    noise_ns: Array  # standard deviation of each sum, where stops come by chance: root of the sum of squares
    stretch: Array  # by how much they made its operators longer, relative
    longest_ns: int  # inside an operator of any rank


def cpu_stops(ranks: Sequence[RankFacts]) -> CpuStops | None:
    """Stops in the steps of CPU ranks; None where operators were not recorded or there are too few steps."""
    if len(ranks) < 2 or not all(len(facts.host_operators) and len(facts.steps) >= MIN_OCCURRENCES for facts in ranks):
        return None
    operators, between, _ = _step_pieces(ranks)
    expected_ns = operators.usual_ns * _pace(operators)
    in_operators, judged = _stops(operators, expected_ns, len(ranks), ~operators.tells_pace)
    longest_ns = int(in_operators.max(initial=0))
    in_python, _ = _stops(between, between.usual_ns, len(ranks))
    in_python[in_python > longest_ns] = 0
    of_rank = np.bincount(operators.rank, weights=in_operators, minlength=len(ranks))
    usual_ns = np.bincount(operators.rank, weights=np.where(judged, expected_ns, 0.0), minlength=len(ranks))
    rank = np.concatenate((operators.rank, between.rank))
    stops = np.concatenate((in_operators, in_python))
    return CpuStops(
        total_ns=np.bincount(rank, weights=stops, minlength=len(ranks)),
        noise_ns=np.sqrt(np.bincount(rank, weights=stops**2, minlength=len(ranks))),
        stretch=of_rank / np.maximum(usual_ns, 1.0),
        longest_ns=longest_ns,
    )


def _pace(pool: Pool) -> Array:
    """Excess of the typical short operator of the rank and step over its usual time, relative, for each piece: a larger
    batch prolongs all operators of a step, a stop only some of those that end within a slice.
    """
    group = pool.rank * (int(pool.step.max(initial=0)) + 1) + pool.step
    usual_ns = np.maximum(pool.usual_ns, 1)
    order = np.argsort(group, kind="stable")
    order = order[pool.tells_pace[order]]
    typical = np.ones(int(group.max(initial=-1)) + 1)
    for pieces in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        if len(pieces):
            weights = usual_ns[pieces].astype(float)
            typical[group[pieces[0]]] = averages.weighted_median(pool.dur_ns[pieces] / weights, weights)
    return np.asarray(typical[group])


def _stops(pool: Pool, expected_ns: Array, ranks: int, torn: Array | bool = False) -> tuple[Array, Array]:
    """Stopped time of each piece, ns as floats, 0 without a stop; and a mask of those that could be judged. `torn`:
    mask of those that a busy machine stops every time."""
    more_ns = (pool.dur_ns - expected_ns).astype(float)
    is_long = more_ns >= MIN_STOP_NS
    here = pool.place * ranks + pool.rank
    count, long = np.bincount(here), np.bincount(here, weights=is_long)
    judged = (count >= MIN_OCCURRENCES)[here] & ((long <= MOST_SHARE * count)[here] | torn)
    return np.where(is_long & judged, more_ns, 0.0), judged


def held_between(ranks: Sequence[RankFacts], position: int, stops: CpuStops | None) -> tuple[str, str, float] | None:
    """The two operators between which a CPU rank stays longest beyond its peers, and the excess, us per step; None
    without such a place. Time at one place in most steps, or longer than any stop inside an operator, is the rank's
    program.
    """
    if stops is None:
        return None
    _, pool, names = _step_pieces(ranks)
    steps = len(ranks[position].steps)
    more_ns = pool.dur_ns - pool.usual_ns
    longer = (pool.rank == position) & (more_ns >= MIN_STOP_NS)
    places = len(pool.keys)
    often = np.bincount(pool.place[longer], minlength=places) > MOST_SHARE * steps
    beyond = np.bincount(pool.place[longer & (more_ns > stops.longest_ns)], minlength=places) >= MIN_TIMES
    at_ns = np.bincount(pool.place[longer], weights=more_ns[longer], minlength=places) * (often | beyond)
    if not at_ns.any():
        return None
    worst = int(np.argmax(at_ns))
    kind = int(pool.keys[worst, 0])
    return names[kind >> 32][0], names[kind & 0xFFFFFFFF][0], float(at_ns[worst]) / 1e3 / steps


_Pieces = tuple[Array, Array, Array]  # of a rank: kind and ordinal of it in the step, shape (2, n); step; duration, ns


def _step_pieces(ranks: Sequence[RankFacts]) -> tuple[Pool, Pool, tuple[Operator, ...]]:
    """Operators of all ranks inside steps, Python between them, and names. An operator's kind is its row of these; the
    kind of Python between two operators holds both rows, the first in the upper half.
    """
    codes: dict[Operator, int] = {}
    operators, between = zip(*(_pieces(facts, codes) for facts in ranks), strict=True)
    return _pooled(operators), _pooled(between), tuple(codes)


def _pieces(facts: RankFacts, codes: dict[Operator, int]) -> tuple[_Pieces, _Pieces]:
    """Operators of a rank, by name and shapes, and its Python between operators, by the operators before and after."""
    ops = facts.host_operators
    start, end = ops["start_ns"], ops["start_ns"] + ops["dur_ns"]
    named, which = distinct(ops["name"], ops["shape"])
    texts = [tuple("" if i == NO_STRING else facts.strings[i] for i in pair) for pair in named.T.tolist()]
    kind = np.array([codes.setdefault(text, len(codes)) for text in texts], np.int64)[which]
    begun, until = free_host(facts)
    before = np.searchsorted(np.sort(end), begun, side="right") - 1
    after = np.searchsorted(start, until)
    is_between = (before >= 0) & (after < len(start))
    before, after = np.argsort(end, kind="stable")[before[is_between]], after[is_between]
    around = (kind[before] << 32) + kind[after]
    return (
        _numbered(facts, kind, start, ops["dur_ns"]),
        _numbered(facts, around, begun[is_between], (until - begun)[is_between]),
    )


def _numbered(facts: RankFacts, kind: Array, start_ns: Array, dur_ns: Array) -> _Pieces:
    """Pieces inside steps, numbered by kind."""
    step = intervals.row_at(facts.steps.bounds, start_ns)
    inside = np.flatnonzero(step >= 0)
    order = inside[np.lexsort((start_ns[inside], step[inside], kind[inside]))]
    _, group = distinct(kind[order], step[order])
    number = np.arange(len(order)) - np.searchsorted(group, group)
    return np.stack((kind[order], number)), step[order], dur_ns[order]


class Pool(Struct, frozen=True):
    """Pieces of all ranks: rank, step, place (kind and ordinal), duration, and the typical duration at that place."""

    rank: Array
    step: Array
    place: Array
    dur_ns: Array
    usual_ns: Array
    keys: Array  # of each place, shape (places, 2)

    @property
    def tells_pace(self) -> Array:
        """Mask of pieces that usually end within the shortest slice, so that few are stopped; all where none does."""
        is_short = self.usual_ns < MIN_STOP_NS
        return np.asarray(is_short | ~is_short.any())


def _pooled(ranks: Sequence[_Pieces]) -> Pool:
    """The pieces of all ranks for comparison."""
    key, step, dur_ns = (np.concatenate(columns, axis=-1) for columns in zip(*ranks, strict=True))
    keys, place = distinct(*key)
    rank = np.repeat(np.arange(len(ranks)), [len(step) for _, step, _ in ranks])
    return Pool(rank, step, place, dur_ns, _lower_medians(place, dur_ns)[place], keys.T)


def _lower_medians(group: Array, values: Array) -> Array:
    """Lower median of each group, by its number."""
    order = np.lexsort((values, group))
    begin = np.searchsorted(group[order], np.arange(int(group.max(initial=-1)) + 1))
    count = np.diff(np.append(begin, len(group)))
    return np.asarray(values[order][begin + (count - 1) // 2])
