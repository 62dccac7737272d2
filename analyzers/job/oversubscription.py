"""Hosts with more computing threads of CPU ranks than cores, and devices with more than one rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddprof.analyzers.facts.cpu.cores import shared_cores
from ddprof.analyzers.facts.model import RankFacts
from ddprof.model import HealthNote
from ddprof.units import format_count, format_ranks


@dataclass(frozen=True)
class Oversubscribed:
    """Computing threads of each rank, ranks of a host, and cores that these may use."""

    threads: int
    ranks: int
    cores: int

    @property
    def fitting(self) -> int:
        """Threads per rank that would each have a core."""
        return max(1, self.cores // self.ranks)

    @property
    def share(self) -> float:
        """Share of their time that threads wait for a core when all are busy."""
        return 1.0 - self.cores / (self.threads * self.ranks)


def oversubscribed(ranks: Sequence[RankFacts]) -> Oversubscribed | None:
    """The host whose CPU ranks' threads exceed its cores most; None where all have cores, or ranks already compute on
    one thread each.
    """
    hosts = []
    for facts, shared in zip(ranks, shared_cores(ranks), strict=True):
        threads = facts.sidecar.precision.num_threads
        if shared is not None and threads is not None and threads > 1 and threads * shared[0] > shared[1]:
            hosts.append(Oversubscribed(threads, *shared))
    return max(hosts, key=lambda host: host.share, default=None)


@dataclass(frozen=True)
class Bound:
    """Ranks of a host and the cores that they are bound to, of those of the `machine`."""

    ranks: int
    cores: int
    machine: int


def bound_to_few(ranks: Sequence[RankFacts]) -> Bound | None:
    """The first host whose CPU ranks are bound to fewer cores than they are, although the machine has more."""
    for facts, shared in zip(ranks, shared_cores(ranks), strict=True):
        machine = facts.sidecar.processors.machine or 0
        if shared is not None and shared[1] < min(shared[0], machine):
            return Bound(*shared, machine)
    return None


def oversubscription_note(ranks: Sequence[RankFacts]) -> list[HealthNote]:
    """A note on the first host with fewer cores than CPU ranks, which then wait for a core."""
    for many, cores in filter(None, shared_cores(ranks)):
        if many > cores:
            effect = "operators include waiting for a core: causes and savings are less certain"
            return [HealthNote(f"{many} ranks share {format_count(cores, 'core')}", effect)]
    return []


def shared_device_note(ranks: Sequence[RankFacts], rank_ids: Sequence[int]) -> list[HealthNote]:
    """A note on the first ranks (numbers: `rank_ids`) that use one device, as where each forgets to set its own."""
    on_device: dict[str, list[int]] = {}
    for facts, rank in zip(ranks, rank_ids, strict=True):
        if facts.sidecar.device.uuid:
            on_device.setdefault(facts.sidecar.device.uuid, []).append(rank)
    together = next((numbers for numbers in on_device.values() if len(numbers) > 1), None)
    if together is None:
        return []
    effect = "their kernels take turns, which lengthens transfers and waits; torch.cuda.set_device(local_rank)?"
    return [HealthNote(f"{format_ranks(together)} share one device", effect)]
