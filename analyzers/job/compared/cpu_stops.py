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

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.compared.pieces import Pieces, step_pieces
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


def cpu_stops(ranks: Sequence[RankFacts]) -> CpuStops | None:
    """Stops in the steps of CPU ranks; None where operators were not recorded or there are too few steps."""
    if len(ranks) < 2 or not all(len(facts.host_operators) and len(facts.steps) >= MIN_OCCURRENCES for facts in ranks):
        return None
    pieces = step_pieces(ranks)
    stopped, usual_ns = _stops(pieces.operators)
    longest_ns = max((int(stops.max(initial=0)) for stops in stopped), default=0)
    in_python, _ = _stops(pieces.between)
    of_rank = tuple(
        np.concatenate((own, python[python <= longest_ns])) for own, python in zip(stopped, in_python, strict=True)
    )
    stretch = np.array([stops.sum() for stops in stopped], float) / np.maximum(usual_ns, 1.0)
    return CpuStops(of_rank, stretch)


def _stops(ranks: Sequence[Pieces]) -> tuple[list[Array], Array]:
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


def held_between(ranks: Sequence[RankFacts], position: int) -> tuple[str, str, float] | None:
    """Between which two operators a CPU rank stays longest beyond its peers in most steps, and by how much, us per
    step; None where there is no such place. What comes back in most steps at one place is what the rank runs there."""
    if len(ranks) < 2 or not all(len(facts.host_operators) and len(facts.steps) for facts in ranks):
        return None
    pieces = step_pieces(ranks)
    key = np.concatenate([own.key for own in pieces.between])
    dur_ns = np.concatenate([own.dur_ns for own in pieces.between])
    rank = np.repeat(np.arange(len(ranks)), [len(own.dur_ns) for own in pieces.between])
    places, place = np.unique(key, axis=0, return_inverse=True)
    place, own = place.reshape(-1), rank == position
    usual_ns, count = _lower_medians(place, dur_ns), np.bincount(place[own], minlength=len(places))
    longer = own & (dur_ns - usual_ns[place] >= MIN_STOP_NS)
    steps = len(ranks[position].steps)
    often = np.bincount(place[longer], minlength=len(places)) > MOST_SHARE * np.maximum(count, steps)
    more_ns = np.bincount(place[longer], weights=(dur_ns - usual_ns[place])[longer], minlength=len(places)) * often
    if not more_ns.any():
        return None
    worst = int(np.argmax(more_ns))
    before, after = pieces.around(int(places[worst, 0]))
    return before, after, float(more_ns[worst]) / 1e3 / steps
