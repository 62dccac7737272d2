"""The cores that a CPU rank shares with the other ranks of its host."""

from __future__ import annotations

from ddprof.analyzers.facts.model import RankFacts


def shared_cores(facts: RankFacts) -> tuple[int, int] | None:
    """(ranks of its host, cores it may use) of a CPU rank that recorded both, else None."""
    known = None if facts.is_device_rank else facts.sidecar.get("processors")
    if not isinstance(known, dict):
        return None
    many, cores = known.get("local_ranks"), known.get("usable")
    return (many, cores) if isinstance(many, int) and isinstance(cores, int) and cores > 0 else None
