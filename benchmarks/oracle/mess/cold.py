"""cold: the recording opens at the start of the job, so its first step holds what occurs once."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.mess.kind import MessKind, draw_for, with_mess
from benchmarks.oracle.rank import BACKWARD, MAIN, Occupant, Program, Rank
from benchmarks.oracle.spec import Mess, Scenario
from benchmarks.oracle.world import FIRST, Once, World

# Shares of the start-up, as in public recordings: context, first allocation, workers, module load forward and backward.
PARTS = (0.26, 0.04, 0.2, 0.3, 0.2)
SHORTEST_US, LONGEST_US = 3e5, 5e6


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario:
    """A start-up of a fraction of a second to several seconds."""
    total = float(np.exp(draw.uniform(np.log(SHORTEST_US), np.log(LONGEST_US))))
    return with_mess(scenario, Mess("cold", round(total, 1)))


def world(world: World, mess: Mess) -> None:
    """The first recorded step starts the device, the workers and the libraries."""
    world.once.setdefault(FIRST, []).append(Once(start=lambda rank: start(rank, mess.strength), opens_job=True))


def start(rank: Rank, total: float) -> Program:
    """Context (cudaFree), first allocation, then a late batch, and module loads inside the first launches."""
    draws = draw_for(rank.world, "cold", rank.rank).uniform(0.8, 1.25, len(PARTS))
    context, allocation, workers, forward, backward = (
        float(share * total * factor) for share, factor in zip(PARTS, draws, strict=True)
    )
    for call, us in (("cudaFree", context), ("cudaMalloc", allocation)):
        began = rank.t
        external = rank.next_external()
        rank.runtime(call, began + 1.5, us, external)
        rank.t += us + 3.0
        rank.record_as(external, "cpu_op", "aten::empty", began, rank.t - 0.5)
        rank.occupants.append(Occupant(began, rank.t, "allocator"))
    rank.late_batch_us = workers
    rank.launch_holds = {MAIN: [forward], BACKWARD: [backward]}
    yield from ()


KIND = MessKind("cold", "context, module load and the first batch in the first recorded step", add, world, once=True)
