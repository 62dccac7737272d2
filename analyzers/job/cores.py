"""CPU ranks and the cores they share: computing beside communication takes longer where cores are too few."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.analyzers.facts.model import RankFacts
from ddprof.model import HealthNote


def core_contention(ranks: Sequence[RankFacts]) -> float:
    """How much longer an operator of a CPU rank takes while its backend's thread moves data, relative to without.

    0 where cores suffice or their number is unknown.

    A rank keeps one core busy, and a second one while it communicates: gloo copies and adds on the CPU.
    """
    found = _shares(ranks)
    if not found or len(found) < len(ranks):
        return 0.0
    share = sum(many / cores for many, cores in found) / len(found)
    return max(1.0, 2 * share) / max(1.0, share) - 1.0


def crowding_note(ranks: Sequence[RankFacts]) -> list[HealthNote]:
    """A note where CPU ranks share a host with fewer cores than ranks: each then waits for its turn on a core."""
    crowded = [(many, cores) for many, cores in _shares(ranks) if many > cores]
    if not crowded:
        return []
    many, cores = crowded[0]
    effect = "operators include waiting for a core: why a rank is late, and what a fix wins, is less sure"
    return [HealthNote(f"{many} ranks share {cores} cores", effect)]


def shared_cores(facts: RankFacts) -> tuple[int, int] | None:
    """(ranks of its host, cores it may use) of a CPU rank that recorded both, else None."""
    known = None if facts.is_device_rank else facts.sidecar.get("processors")
    if not isinstance(known, dict):
        return None
    many, cores = known.get("local_ranks"), known.get("usable")
    return (many, cores) if isinstance(many, int) and isinstance(cores, int) and cores > 0 else None


def _shares(ranks: Sequence[RankFacts]) -> list[tuple[int, int]]:
    return [shared for facts in ranks if (shared := shared_cores(facts)) is not None]
