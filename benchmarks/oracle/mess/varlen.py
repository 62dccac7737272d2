"""varlen: samples have lengths, so that steps differ several times; healthy, since all ranks' batches are alike."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.draws import generator
from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.spec import Mess, Scenario
from benchmarks.oracle.world import World

LEAST, MOST = 0.15, 0.45  # standard deviation of the logarithm of the length


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario | None:
    """Add it where batches have a length."""
    if scenario.model.arch == "cnn" or scenario.parallel.kind == "pp":
        return None
    return with_mess(scenario, Mess("varlen", round(float(draw.uniform(LEAST, MOST)), 3)))


def world(world: World, mess: Mess) -> None:
    """One length a step, for all ranks."""
    for step in range(world.steps):
        spread = float(generator(world.seed, "mess varlen", step).standard_normal())
        world.length[step] = float(np.exp(mess.strength * min(max(spread, -2.0), 2.0)))


KIND = MessKind("varlen", "sample lengths vary from step to step", add, world)
