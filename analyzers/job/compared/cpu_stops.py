"""Moments in which CPU ranks were kept from running, from the recording alone.

Ranks of one program run the same operators, in the same order, in every step. An operator that takes a slice of the
scheduler longer than the same one of the other steps and ranks was interrupted; so was the Python between two
operators. Interruptions fall anywhere: what takes longer in most steps of a rank is its program or its machine, and
none. What holds the Python of a rank for longer than any operator of the job was held is its program as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.facts.model import NO_STRING, RankFacts
from ddprof.analyzers.facts.work import free_host
from ddprof.tables import Array

# The shortest slice of Linux's scheduler for which another thread has the core: 0.7 ms x (1 + log2(cores)), on two.
MIN_STOP_NS = 1_400_000
MIN_OCCURRENCES = 3  # of an operator on a rank; fewer have no usual time
MOST_SHARE = 0.5  # of its occurrences on a rank: an operator that takes longer more often is slow, and not stopped


@dataclass(frozen=True)
class CpuStops:
    """Stops of each rank, ns each, and by how much they made its operators longer (relative); shape (ranks,)."""

    of_rank: tuple[Array, ...]
    stretch: Array

    @property
    def total_ns(self) -> Array:
        """Sum of each rank's stops."""
        return np.array([float(stops.sum()) for stops in self.of_rank])

    @property
    def noise_ns(self) -> Array:
        """Standard deviation of each sum, where stops come by chance: how many there are varies as their number."""
        return np.array([float(np.sqrt((stops.astype(float) ** 2).sum())) for stops in self.of_rank])


@dataclass(frozen=True)
class _Pieces:
    """Operators, or Python between two of them: kind and which one of its kind in the step, shape (n, 2); duration."""

    key: Array
    dur_ns: Array


def cpu_stops(ranks: Sequence[RankFacts]) -> CpuStops | None:
    """Stops in the steps of CPU ranks; None where operators were not recorded or there are too few steps."""
    if len(ranks) < 2 or not all(len(facts.host_operators) and len(facts.steps) >= MIN_OCCURRENCES for facts in ranks):
        return None
    codes: dict[tuple[str, ...], int] = {}
    operators, between = zip(*(_pieces(facts, codes) for facts in ranks), strict=True)
    stopped, usual_ns = _stops(operators)
    longest_ns = max((int(stops.max(initial=0)) for stops in stopped), default=0)
    in_python, _ = _stops(between)
    of_rank = tuple(
        np.concatenate((own, python[python <= longest_ns])) for own, python in zip(stopped, in_python, strict=True)
    )
    stretch = np.array([stops.sum() for stops in stopped], float) / np.maximum(usual_ns, 1.0)
    return CpuStops(of_rank, stretch)


def _pieces(facts: RankFacts, codes: dict[tuple[str, ...], int]) -> tuple[_Pieces, _Pieces]:
    """Operators of a rank, by name and shapes, and its Python between operators, by the operators before and after."""
    ops = facts.host_operators
    start, end = ops["start_ns"], ops["start_ns"] + ops["dur_ns"]
    pairs = np.stack((ops["name"], ops["shape"]), axis=1)
    named, which = np.unique(pairs, axis=0, return_inverse=True)
    texts = [tuple("" if i == NO_STRING else facts.strings[i] for i in pair) for pair in named.tolist()]
    kind = np.array([codes.setdefault(text, len(codes)) for text in texts], np.int64)[which.reshape(-1)]
    begun, until = free_host(facts)
    before = np.searchsorted(np.sort(end), begun, side="right") - 1
    after = np.searchsorted(start, until)
    known = (before >= 0) & (after < len(start))
    before, after = np.argsort(end, kind="stable")[before[known]], after[known]
    around = (kind[before] << 32) + kind[after]
    return (
        _numbered(facts, kind, start, ops["dur_ns"]),
        _numbered(facts, around, begun[known], (until - begun)[known]),
    )


def _numbered(facts: RankFacts, kind: Array, start_ns: Array, dur_ns: Array) -> _Pieces:
    """What lies in steps, by kind."""
    steps = facts.steps
    step = np.searchsorted(steps["start_ns"], start_ns, side="right") - 1
    inside = np.flatnonzero((step >= 0) & (start_ns < np.append(steps["end_ns"], 0)[step]))
    order = inside[np.lexsort((start_ns[inside], step[inside], kind[inside]))]
    group = np.stack((kind[order], step[order]), axis=1)
    _, first, which = np.unique(group, axis=0, return_index=True, return_inverse=True)
    number = np.arange(len(order)) - first[which.reshape(-1)]
    return _Pieces(np.stack((kind[order], number), axis=1), dur_ns[order])


def _stops(ranks: Sequence[_Pieces]) -> tuple[list[Array], Array]:
    """Per rank the stops (ns each), and the usual time of all that was compared (ns), shape (ranks,)."""
    rank = np.repeat(np.arange(len(ranks)), [len(pieces.dur_ns) for pieces in ranks])
    dur_ns = np.concatenate([pieces.dur_ns for pieces in ranks])
    _, place = np.unique(np.concatenate([pieces.key for pieces in ranks]), axis=0, return_inverse=True)
    place = place.reshape(-1)
    usual_ns = _lower_medians(place, dur_ns)[place]
    is_long = dur_ns - usual_ns >= MIN_STOP_NS
    here = place * len(ranks) + rank
    count, long = np.bincount(here), np.bincount(here, weights=is_long)
    is_judged = (count >= MIN_OCCURRENCES) & (long <= MOST_SHARE * count)
    judged = is_judged[here]
    stops = [(dur_ns - usual_ns)[is_long & judged & (rank == r)] for r in range(len(ranks))]
    return stops, np.bincount(rank[judged], weights=usual_ns[judged], minlength=len(ranks))


def _lower_medians(group: Array, values: Array) -> Array:
    """Of each group, by its number."""
    order = np.lexsort((values, group))
    begin = np.searchsorted(group[order], np.arange(int(group.max(initial=-1)) + 1))
    count = np.diff(np.append(begin, len(group)))
    return np.asarray(values[order][begin + (count - 1) // 2])
