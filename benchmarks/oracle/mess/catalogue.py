"""Every kind of mess by name, and what the messes of a scenario do together."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.mess import (
    accum,
    ahead,
    bcast,
    cold,
    compiled,
    foreign,
    holes,
    interleaved,
    lost,
    marks,
    oneoff,
    partial,
    prof,
    rdv,
    sampled,
    shifted,
    stacks,
    truncated,
    val,
    varlen,
)
from benchmarks.oracle.mess.kind import MessKind
from benchmarks.oracle.rank import Rank
from benchmarks.oracle.rows import Row
from benchmarks.oracle.spec import Scenario
from benchmarks.oracle.world import World

KINDS = (
    cold.KIND, prof.KIND, bcast.KIND, oneoff.KIND, val.KIND, ahead.KIND, foreign.KIND, lost.KIND, sampled.KIND,
    holes.KIND, rdv.KIND, rdv.BESIDE, partial.KIND, truncated.KIND, shifted.KIND, marks.NOMARKS, marks.RENAMED,
    marks.NESTED, marks.DEVICE, compiled.KIND, stacks.KIND, accum.KIND, varlen.KIND,
    interleaved.KIND,
)  # fmt: skip
MESSES: dict[str, MessKind] = {kind.name: kind for kind in KINDS}
AFTER_FAULTS = ("partial", "truncated")  # whose file may be missing or cut depends on who is to blame


def fits_together(names: tuple[str, ...]) -> bool:
    """True where none of them excludes another."""
    return not any(other in MESSES[name].excludes for name in names for other in names)


def add(draw: np.random.Generator, scenario: Scenario, names: tuple[str, ...]) -> Scenario | None:
    """The scenario with these messes; None where one of them does not fit."""
    found: Scenario | None = scenario
    for name in names:
        found = MESSES[name].add(draw, found) if found is not None else None
    return found


def disturb(world: World, scenario: Scenario) -> None:
    """Apply the messes to the simulation."""
    for mess in scenario.mess:
        MESSES[mess.name].world(world, mess)


def changed(scenario: Scenario, rank: Rank, rows: list[Row]) -> list[Row]:
    """A rank's file after the messes."""
    for mess in scenario.mess:
        rows = MESSES[mess.name].rows(rank, rows, mess)
    return rows


def cut(scenario: Scenario, rank: int, data: bytes) -> bytes:
    """A rank's bytes after the messes."""
    for mess in scenario.mess:
        data = MESSES[mess.name].cut(rank, data, mess)
    return data
