"""sampled: events were thinned out to make the file smaller: the k-th collectives of two files are not the same one."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.mess.kind import MessKind, draw_for, with_mess
from benchmarks.oracle.rank import Rank
from benchmarks.oracle.rows import COMPLETE, Row
from benchmarks.oracle.spec import Mess, Scenario

LEAST, MOST = 0.3, 0.8


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario | None:
    """A third to most of the events are left; only healthy runs, since nothing can be found for certain."""
    if scenario.cluster.world < 2:
        return None
    return with_mess(scenario, Mess("sampled", round(float(draw.uniform(LEAST, MOST)), 3)))


def rows(rank: Rank, rows: list[Row], mess: Mess) -> list[Row]:
    """Each event stays with the chance `strength`; flows and step marks stay."""
    chances = draw_for(rank.world, "sampled", rank.rank).uniform(size=len(rows))
    return [
        row
        for row, chance in zip(rows, chances, strict=True)
        if chance < mess.strength or row.phase != COMPLETE or row.is_mark
    ]


KIND = MessKind("sampled", "most events were left out", add, rows=rows, unbooked=True)
