"""Cores that CPU ranks share with the other ranks of their host."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts

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
        shared.append(None if facts.is_device_rank or many is None or not cores else (many, cores))
    return shared


def _count(lists: Sequence[str]) -> int:
    """Number of cores in any of these lists; 0 where one of them is not known."""
    parts = [_CORES.fullmatch(part) for cores in lists for part in cores.split(",")]
    if not all(parts):
        return 0
    ends = np.array([(int(part[1]), int(part[2] or part[1]) + 1) for part in parts if part], np.int64)
    return intervals.length(intervals.union(*ends.T))
