"""Hosts with more computing threads of CPU ranks than cores, and devices with more than one rank."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.work import computes
from ddprof.model import HealthNote
from ddprof.units import format_count, format_ranks

# Cores that CPU ranks share with the other ranks of their host.

_CORES = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")  # a part of a list such as "0-3,8"


def shared_cores(ranks: Sequence[RankFacts]) -> list[tuple[int, int] | None]:
    """(ranks on its host, cores that these may use) of each CPU rank that recorded both, else None. Ranks that are
    bound to cores of their own may use all of these together.
    """
    of_host: dict[str | None, list[str]] = defaultdict(list)
    for facts in ranks:
        of_host[facts.sidecar.host].append(facts.sidecar.processors.cores or "")
    together = {host: _count(each) for host, each in of_host.items()}
    shared: list[tuple[int, int] | None] = []
    for facts in ranks:
        host, processors = facts.sidecar.host, facts.sidecar.processors
        many, cores = processors.local_ranks, processors.usable
        if many == len(of_host[host]) and together[host]:
            cores = together[host]
        shared.append(None if not computes(facts) or many is None or not cores else (many, cores))
    return shared


def _count(lists: Sequence[str]) -> int:
    """Number of cores in any of these lists; 0 where one of them is not known."""
    parts = [_CORES.fullmatch(part) for cores in lists for part in cores.split(",")]
    if not all(parts):
        return 0
    ends = np.array([(int(part[1]), int(part[2] or part[1]) + 1) for part in parts if part], np.int64)
    return intervals.length(intervals.union(*ends.T))


class Oversubscribed(Struct, frozen=True):
    """Computing threads of each rank, ranks of a host, cores that these may use, and of its machine (0: unknown)."""

    threads: int
    ranks: int
    cores: int
    machine: int

    @property
    def fitting(self) -> int:
        """Threads per rank that would each have a core."""
        return max(1, self.cores // self.ranks)

    @property
    def share(self) -> float:
        """Share of their time that threads wait for a core when all are busy."""
        return 1.0 - self.cores / (self.threads * self.ranks)


def oversubscribed(ranks: Sequence[RankFacts]) -> Oversubscribed | None:
    """The host whose CPU ranks' threads exceed their cores most; None where all have cores, or ranks that compute on
    one thread each may use every core of their machine.
    """
    hosts = []
    for facts, shared in zip(ranks, shared_cores(ranks), strict=True):
        machine, threads = facts.sidecar.processors.machine or 0, facts.sidecar.precision.num_threads or 1
        if shared is None:
            continue
        host = Oversubscribed(threads, *shared, machine)
        if host.share > 0 and (threads > 1 or host.cores < machine):
            hosts.append(host)
    return max(hosts, key=lambda host: host.share, default=None)


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
