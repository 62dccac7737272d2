"""oneoff: one step in the recording holds a checkpoint, a log that is flushed or a metric that is computed, once."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.finish import checkpoint
from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.rank import Program, Rank
from benchmarks.oracle.spec import Mess, Scenario
from benchmarks.oracle.world import LAST, Once, World

SHORTEST_STEPS, LONGEST_STEPS = 1.0, 30.0  # how long it takes, in layers' forward times a hundred
MODES = ("checkpoint", "checkpoint_rank0", "metrics")


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario:
    """In the middle of the recording or in its last step."""
    us = scenario.model.unit_us * 100.0 * float(draw.uniform(SHORTEST_STEPS, LONGEST_STEPS))
    place = int(draw.integers(1, scenario.steps)) if scenario.steps > 1 and draw.uniform() < 0.6 else LAST
    mode = MODES[int(draw.integers(len(MODES)))]
    return with_mess(scenario, Mess("oneoff", round(us, 1), (), {"place": place, "mode": mode}))


def world(world: World, mess: Mess) -> None:
    """The step at `place` takes `strength` longer."""
    place = mess.detail["place"]
    key = place if isinstance(place, str) else int(place)
    world.once.setdefault(key, []).append(Once(end=lambda rank: occurrence(rank, mess)))


def occurrence(rank: Rank, mess: Mess) -> Program:
    """The one-off event."""
    mode = mess.detail["mode"]
    if mode == "metrics":
        rank.t += mess.strength
    elif mode == "checkpoint" or rank.rank == 0:
        yield from checkpoint(rank, mess.strength)


KIND = MessKind("oneoff", "a checkpoint or a computed metric in one step", add, world, once=True)
