"""Clocks for comparing standstills of different ranks.

Ranks that share recorded operations have one clock. Between two hosts without any, work at one place of the program
serves: if their ranks meet there, the clock difference is the same each time, and its scatter is the error. Ranks that
do not meet there drift apart step by step, which the error shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.model import Clock
from ddprof.analyzers.job.rendezvous.standstills import Standstills

FEWEST = 3  # differences at a place: two may agree by chance


class PlaceClocks:
    """Offset of each rank's clock against the reference, and its error, at a place of the program; ns."""

    def __init__(self, ranks: Sequence[RankFacts], clock: Clock, standstills: Sequence[Standstills]) -> None:
        self._ranks, self._clock, self._standstills = ranks, clock, standstills
        self.at = cache(self._at)
        self._by_domain = cache(self._differences)

    def _at(self, position: int, place: int) -> tuple[int, int] | None:
        """Offset and error of a rank's clock at a place; None where the clocks cannot be compared."""
        name = self._clock.domain_of[position]
        domain = self._clock.domains[name]
        if domain.error_ns is not None:
            return domain.offset_ns, domain.error_ns
        return self._by_domain(self._clock.domain_of.index(name), place)

    def _differences(self, position: int, place: int) -> tuple[int, int] | None:
        """Offset and error of a domain's first rank against the job's first rank: the typical difference of events that
        are nearest if steps begin together.
        """
        facts, first = self._ranks[position], self._ranks[0]
        _, i, j = np.intersect1d(facts.steps["index"], first.steps["index"], return_indices=True)
        if not len(i):
            return None
        rough = round(float(np.median(facts.steps["mark_ns"][i] - first.steps["mark_ns"][j])))
        events, others = self._standstills[position].events, self._standstills[0].events
        here = others.at_ns[others.of(place)].tolist()
        rows = [(events.nearest(place, at + rough), at) for at in here]
        difference = np.array([int(events.at_ns[row]) - at for row, at in rows if row is not None])
        if len(difference) < FEWEST:
            return None
        offset = float(np.median(difference))
        return round(offset), max(1, round(float(np.quantile(np.abs(difference - offset), 0.9))))
