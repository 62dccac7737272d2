"""Hosts whose CPU ranks are more than their cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddprof.analyzers.facts.cpu.cores import shared_cores
from ddprof.analyzers.facts.model import RankFacts
from ddprof.model import HealthNote


@dataclass(frozen=True)
class Oversubscribed:
    """Threads of each rank that compute an operator, ranks of a host, and cores that these may use."""

    threads: int
    ranks: int
    cores: int

    @property
    def fitting(self) -> int:
        """Threads per rank that have a core each."""
        return max(1, self.cores // self.ranks)

    @property
    def share(self) -> float:
        """Share of their time that threads wait for a core, where all are busy and take turns."""
        return 1.0 - self.cores / (self.threads * self.ranks)


def oversubscribed(ranks: Sequence[RankFacts]) -> Oversubscribed | None:
    """The host on which the threads of CPU ranks exceed the cores most; None where each could have one, or where ranks
    already compute on one thread each.
    """
    found = []
    for facts in ranks:
        shared, threads = shared_cores(facts), facts.sidecar.precision.num_threads
        if shared is not None and threads is not None and threads > 1 and threads * shared[0] > shared[1]:
            found.append(Oversubscribed(threads, *shared))
    return max(found, key=lambda host: host.share, default=None)


def oversubscription_note(ranks: Sequence[RankFacts]) -> list[HealthNote]:
    """A note on the first host with fewer cores than CPU ranks: each rank then waits for its turn on a core."""
    for many, cores in filter(None, map(shared_cores, ranks)):
        if many > cores:
            effect = "operators include waiting for a core: causes and savings are less certain"
            return [HealthNote(f"{many} ranks share {cores} cores", effect)]
    return []
