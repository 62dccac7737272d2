"""holes: a stretch of the recording is missing from some files."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.mess.kind import MessKind, draw_for, with_mess
from benchmarks.oracle.rank import Rank
from benchmarks.oracle.rows import Row
from benchmarks.oracle.spec import Mess, Scenario

LEAST, MOST = 0.03, 0.2  # of the recording


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario:
    """On one rank, some or all."""
    world = scenario.cluster.world
    count = int(draw.choice([1, max(1, world // 2), world]))
    ranks = tuple(sorted(int(r) for r in draw.choice(world, count, replace=False)))
    return with_mess(scenario, Mess("holes", round(float(draw.uniform(LEAST, MOST)), 3), ranks))


def rows(rank: Rank, rows: list[Row], mess: Mess) -> list[Row]:
    """Nothing that starts in the hole is in the file but step marks, which are written when a step ends."""
    if rank.rank not in mess.ranks:
        return rows
    begin, end = rank.marks[0], rank.marks[-1]
    at = begin + float(draw_for(rank.world, "holes", rank.rank).uniform(0.0, 1.0 - mess.strength)) * (end - begin)
    until = at + mess.strength * (end - begin)
    return [row for row in rows if row.is_mark or not at <= row.start < until]


KIND = MessKind("holes", "a stretch of time is missing", add, rows=rows, unbooked=True,
                health=lambda mess: [{"issue": "hole", "rank": rank} for rank in mess.ranks])  # fmt: skip
