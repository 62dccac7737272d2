"""val: a validation loop inside the recording: forward passes without backward at the end of one step."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.rank import Program, Rank
from benchmarks.oracle.spec import Mess, Scenario
from benchmarks.oracle.step import copy_in, forward_operators, head_forward, item
from benchmarks.oracle.world import LAST, Once, World

MOST_BATCHES = 8


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario | None:
    """Where forward needs no other stage and no gathered parameters."""
    if scenario.parallel.kind not in ("ddp", "tpdp"):
        return None
    place = int(draw.integers(1, scenario.steps)) if scenario.steps > 1 and draw.uniform() < 0.5 else LAST
    return with_mess(scenario, Mess("val", float(draw.integers(2, MOST_BATCHES + 1)), (), {"place": place}))


def world(world: World, mess: Mess) -> None:
    """`strength` batches are validated."""
    place = mess.detail["place"]
    key = place if isinstance(place, str) else int(place)
    world.once.setdefault(key, []).append(Once(end=lambda rank: validate(rank, int(mess.strength))))


def validate(rank: Rank, batches: int) -> Program:
    """`model.eval()` and forward passes, then the accuracy is read."""
    for _ in range(batches):
        yield from copy_in(rank)
        for layer in range(rank.world.model.layers):
            forward_operators(rank, layer)
        head_forward(rank)
    yield from item(rank)


KIND = MessKind("val", "a validation loop at the end of one step", add, world, once=True)
