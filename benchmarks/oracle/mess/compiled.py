"""compiled: the model was compiled already: regions of `torch.compile`, Triton kernels, replayed graphs."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.compiled import GRAPHS, INDUCTOR
from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.spec import Mess, Scenario
from benchmarks.oracle.world import World

GRAPHS_CHANCE = 0.4


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario:
    """Any model, with or without graphs."""
    return with_mess(
        scenario, Mess("compiled", detail={"mode": GRAPHS if draw.uniform() < GRAPHS_CHANCE else INDUCTOR})
    )


def world(world: World, mess: Mess) -> None:
    """Inductor's names and regions; graphs take the place of single launches."""
    world.compiled = str(mess.detail["mode"])


KIND = MessKind("compiled", "compiled regions, Triton kernels, graph launches", add, world)
