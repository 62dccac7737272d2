"""truncated: files end in the middle, as those of a killed job do; any number of them."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.draws import generator
from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.spec import Mess, Scenario

LEAST, MOST = 0.3, 0.97  # of the bytes are left


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario | None:
    """One file, some, or all of a healthy run's; of a run with a fault at most half, and none of a culprit's."""
    world = scenario.cluster.world
    blamed = {rank for fault in scenario.faults for rank in fault.ranks}
    others = [rank for rank in range(world) if rank not in blamed]
    most = min(len(others), world // 2) if scenario.faults else world
    if most < 1:
        return None
    count = int(draw.choice([1, 1, max(1, most // 2), most]))
    ranks = tuple(sorted(int(r) for r in draw.choice(others, count, replace=False)))
    return with_mess(scenario, Mess("truncated", float(scenario.seed), ranks))


def cut(rank: int, data: bytes, mess: Mess) -> bytes:
    """A part of the bytes; `strength` is the seed of how much."""
    if rank not in mess.ranks:
        return data
    return data[: int(len(data) * generator(int(mess.strength), "truncated", rank).uniform(LEAST, MOST))]


KIND = MessKind("truncated", "files are cut short", add, cut=cut, unbooked=True,
                health=lambda mess: [{"issue": "truncated", "rank": rank} for rank in mess.ranks])  # fmt: skip
