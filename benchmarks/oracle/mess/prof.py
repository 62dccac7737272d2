"""prof: the profiler starts inside the first recorded step and stops inside the last."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.mess.kind import MessKind, draw_for, with_mess
from benchmarks.oracle.rank import Program, Rank
from benchmarks.oracle.spec import Mess, Scenario
from benchmarks.oracle.step import device_sync
from benchmarks.oracle.world import FIRST, LAST, Once, World

SHORTEST_US, LONGEST_US = 4e4, 2e5
STOP_PIECES = 2


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario:
    """Tens to hundreds of milliseconds at each edge."""
    return with_mess(scenario, Mess("prof", round(float(draw.uniform(SHORTEST_US, LONGEST_US)), 1)))


def world(world: World, mess: Mess) -> None:
    """The first and the last recorded step hold the profiler's own work."""
    world.once.setdefault(FIRST, []).append(Once(start=lambda rank: interrupt(rank, mess.strength, 1)))
    world.once.setdefault(LAST, []).append(Once(end=lambda rank: interrupt(rank, mess.strength, STOP_PIECES)))


def interrupt(rank: Rank, total: float, pieces: int) -> Program:
    """The host works for the profiler and waits for the device, at different length on each rank."""
    for us in draw_for(rank.world, f"prof{pieces}", rank.rank).uniform(0.7, 1.3, pieces) * total:
        rank.t += 0.5 * float(us)
        yield from device_sync(rank)
        began = rank.t
        rank.t += 0.5 * float(us)
        rank.runtime("cudaDeviceSynchronize", began, rank.t - began - 1.0, 0)  # CUPTI flushes its buffers


KIND = MessKind("prof", "profiler start and stop in the first and last step", add, world, once=True)
