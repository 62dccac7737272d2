"""Test of matched operations: nobody leaves a collective before its last member has arrived.

That holds for every operation that two ranks share, whatever their clocks' offset and drift. Where events were sampled
or filtered, or a file is of another run, the k-th collectives of two files differ and it fails; where a clock was set,
it fails from then on. Then nothing may be concluded: no wait, no clock, no late rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.stepping.steps import RESOLUTION_NS
from ddprof.analyzers.job.clock import ClockDifference, SharedOperations
from ddprof.analyzers.job.matching import Matched
from ddprof.model import HealthNote
from ddprof.tables import Array
from ddprof.units import format_ranks

DRIFT = 200e-6  # of two quartz clocks against one another: 100 ppm each is their usual limit
IMPOSSIBLE_SHARE = 0.1  # of shared operations; one in ten may be torn by a lost event
PARTNERS = 8  # ranks that each rank is compared with; all, where there are fewer
_WHY = "events are missing, a clock was set, or a file is from another run"
NOT_THE_SAME = f"the collectives of these files do not match: {_WHY}"


def disagreeing(ranks: Sequence[RankFacts], matched: Matched) -> list[int]:
    """Positions of ranks whose operations cannot be the ones they are matched with on most ranks."""
    shared = SharedOperations(ranks, matched)
    partners = range(len(ranks))[:: -(-len(ranks) // PARTNERS)]
    positions = []
    for position in range(len(ranks)):
        compared = [c for p in partners if p != position and (c := shared.compare(p, position)) is not None]
        if sum(map(_is_impossible, compared)) * 2 > len(compared):
            positions.append(position)
    return positions


def _is_impossible(compared: ClockDifference) -> bool:
    """True where no offset and drift of the clocks lets every member arrive before any left, in many operations, or in
    all since some time or until then, as where a clock was set.

    Uses operations whose length both ranks know, as a flight recorder may know no end.
    """
    has_length = (compared.most_ns > compared.difference_ns) & (compared.difference_ns > compared.least_ns)
    if not has_length.any():
        return False
    middle = (compared.when_ns.max() + compared.when_ns.min()) / 2
    slack = (RESOLUTION_NS + DRIFT * np.abs(compared.when_ns - middle))[has_length]
    at_once = _most_at_once(compared.least_ns[has_length] - slack, compared.most_ns[has_length] + slack)
    changes = np.count_nonzero(np.diff(at_once[np.argsort(compared.when_ns[has_length], kind="stable")]))
    return bool(changes == 1 or 1 - at_once.mean() > IMPOSSIBLE_SHARE)


def _most_at_once(low: Array, high: Array) -> Array:
    """Mask of the most intervals [low, high] that share one value."""
    bounds = np.concatenate((low, high))
    opens = np.repeat([1, -1], (len(low), len(high)))
    order = np.lexsort((-opens, bounds))  # where one ends as another begins, the value is in both
    value = bounds[order][np.argmax(np.cumsum(opens[order]))]
    return np.asarray((low <= value) & (value <= high))


def unmatched(matched: Matched) -> Matched:
    """Every row as an operation with one known member."""
    by_row = {name: getattr(matched, name)[matched.instance] for name in ("op", "group", "is_message", "size_bytes")}
    return replace(matched, instance=np.arange(len(matched.instance)), **by_row)


def odd_ranks_note(ranks: Sequence[RankFacts]) -> HealthNote:
    """Note on ranks that contradict the others and are left out."""
    named = format_ranks(tuple(r for f in ranks if (r := f.identity.rank) is not None))
    return HealthNote(f"the collectives of {named} are not those of the other ranks", f"left out: {NOT_THE_SAME}")
