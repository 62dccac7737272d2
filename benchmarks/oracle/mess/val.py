"""val: a validation loop inside the recording: forward passes without backward at the end of one step."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.finish import evaluate
from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.spec import Mess, Scenario
from benchmarks.oracle.world import LAST, Once, World

MOST_BATCHES = 8


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario | None:
    """Add it where forward needs no other stage and no gathered parameters."""
    if scenario.parallel.kind not in ("ddp", "tpdp"):
        return None
    place = int(draw.integers(1, scenario.steps)) if scenario.steps > 1 and draw.uniform() < 0.5 else LAST
    return with_mess(scenario, Mess("val", float(draw.integers(2, MOST_BATCHES + 1)), (), {"place": place}))


def world(world: World, mess: Mess) -> None:
    """`strength` batches are validated."""
    place = mess.detail["place"]
    key = place if isinstance(place, str) else int(place)
    world.once.setdefault(key, []).append(Once(end=lambda rank: evaluate(rank, int(mess.strength))))


KIND = MessKind("val", "a validation loop at the end of one step", add, world, once=True)
