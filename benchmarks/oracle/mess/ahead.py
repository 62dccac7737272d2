"""ahead: the script never waits for its device: work from before the window runs in it, and work ends after it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.spec import Mess, Scenario
from benchmarks.oracle.world import World

DEPTHS = (1, 2, 3)


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario:
    """The host is one to three steps ahead."""
    depth = int(draw.choice(DEPTHS))
    return with_mess(scenario, Mess("ahead", float(depth)), model=replace(scenario.model, sync="none"))


def world(world: World, mess: Mess) -> None:
    """Set how far the host runs ahead."""
    world.queue_steps = int(mess.strength)


KIND = MessKind(
    "ahead", "the host is one or more steps ahead of its device", add, world, excludes=("rdv", "rdv_beside")
)
