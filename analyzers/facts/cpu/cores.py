"""Cores that CPU ranks share with the other ranks of their host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ddprof.analyzers.facts.model import RankFacts


def shared_cores(ranks: Sequence[RankFacts]) -> list[tuple[int, int] | None]:
    """(ranks on its host, cores that these may use) of each CPU rank that recorded both, else None. Ranks that are
    bound to cores of their own may use all of these together.
    """
    of_host: dict[str | None, list[str]] = defaultdict(list)
    for facts in ranks:
        of_host[facts.sidecar.host].append(facts.sidecar.processors.cores or "")
    together = {host: len(set().union(*map(_numbers, each))) if all(each) else 0 for host, each in of_host.items()}
    shared: list[tuple[int, int] | None] = []
    for facts in ranks:
        host, processors = facts.sidecar.host, facts.sidecar.processors
        many, cores = processors.local_ranks, processors.usable
        is_whole = many == len(of_host[host]) and together[host] > 0
        known = not facts.is_device_rank and many is not None and cores
        shared.append((many, together[host] if is_whole else cores) if known else None)  # type: ignore[arg-type]
    return shared


def _numbers(cores: str) -> set[int]:
    """The cores of a list such as "0-3,8"."""
    ends = [part.partition("-") for part in cores.split(",")]
    return {core for first, _, last in ends for core in range(int(first), int(last or first) + 1)}
