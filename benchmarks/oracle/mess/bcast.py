"""bcast: DDP or FSDP broadcast parameters in the first recorded step, and ranks come to it seconds apart."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.comm import collective
from benchmarks.oracle.mess.kind import MessKind, draw_for, with_mess
from benchmarks.oracle.rank import Program, Rank
from benchmarks.oracle.spec import Mess, Scenario
from benchmarks.oracle.world import FIRST, Once, World

SHORTEST_US, LONGEST_US = 1e5, 3e6
BROADCASTS = 5
ELEMENTS = 2_000_000


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario | None:
    """Needs a second rank."""
    if scenario.cluster.world < 2:
        return None
    late = float(np.exp(draw.uniform(np.log(SHORTEST_US), np.log(LONGEST_US))))
    return with_mess(scenario, Mess("bcast", round(late, 1), (int(draw.integers(scenario.cluster.world)),)))


def world(world: World, mess: Mess) -> None:
    """One rank is late by `strength`, the others by up to a tenth of it."""
    world.once.setdefault(FIRST, []).append(Once(start=lambda rank: broadcasts(rank, mess)))


def broadcasts(rank: Rank, mess: Mess) -> Program:
    """The late arrival, then the broadcasts, one after the other."""
    share = 1.0 if rank.rank in mess.ranks else 0.1 * float(draw_for(rank.world, "bcast", rank.rank).uniform())
    rank.t += share * mess.strength
    for _ in range(BROADCASTS):
        op = collective(rank, "world", "broadcast", ELEMENTS)
        if op is not None:
            rank.wait_on_stream(op)
    yield from ()


KIND = MessKind("bcast", "start-up broadcasts in the first recorded step", add, world, once=True,
                excludes=("rdv", "rdv_beside"))  # fmt: skip
