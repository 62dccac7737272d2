"""Cores that a CPU rank shares with the other ranks of its host."""

from __future__ import annotations

from ddprof.analyzers.facts.model import RankFacts


def shared_cores(facts: RankFacts) -> tuple[int, int] | None:
    """(ranks on its host, cores it may use) of a CPU rank that recorded both, else None."""
    many, cores = facts.sidecar.processors.local_ranks, facts.sidecar.processors.usable
    return None if facts.is_device_rank or many is None or not cores else (many, cores)
