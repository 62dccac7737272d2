"""truncated: files end in the middle, as those of a killed job do; any number of them."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.draws import generator
from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.spec import Mess, Scenario

LEAST, MOST = 0.3, 0.97  # of the bytes are left


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario:
    """One file, some, or all of them."""
    world = scenario.cluster.world
    count = int(draw.choice([1, 1, max(1, world // 2), world]))
    ranks = tuple(sorted(int(r) for r in draw.choice(world, count, replace=False)))
    return with_mess(scenario, Mess("truncated", float(scenario.seed), ranks))


def cut(rank: int, data: bytes, mess: Mess) -> bytes:
    """A part of the bytes; `strength` is the seed of how much."""
    if rank not in mess.ranks:
        return data
    return data[: int(len(data) * generator(int(mess.strength), "truncated", rank).uniform(LEAST, MOST))]


KIND = MessKind("truncated", "files are cut short", add, cut=cut, unbooked=True,
                health=lambda mess: [{"issue": "truncated", "rank": rank} for rank in mess.ranks])  # fmt: skip
