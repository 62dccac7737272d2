"""compiled: the model was compiled already: regions of `torch.compile`, Triton kernels."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.spec import Mess, Scenario
from benchmarks.oracle.world import World


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario:
    """Any model."""
    return with_mess(scenario, Mess("compiled"))


def world(world: World, mess: Mess) -> None:
    """Inductor's names and regions."""
    world.compiled = "inductor"


KIND = MessKind("compiled", "compiled regions and Triton kernels", add, world)
