"""Hosts whose CPU ranks are more than their cores."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.analyzers.facts.cpu.cores import shared_cores
from ddprof.analyzers.facts.model import RankFacts
from ddprof.model import HealthNote


def oversubscription_note(ranks: Sequence[RankFacts]) -> list[HealthNote]:
    """A note on the first host with fewer cores than CPU ranks: each rank then waits for its turn on a core."""
    for many, cores in filter(None, map(shared_cores, ranks)):
        if many > cores:
            effect = "operators include waiting for a core: why a rank is late, and what a fix saves, is less certain"
            return [HealthNote(f"{many} ranks share {cores} cores", effect)]
    return []
