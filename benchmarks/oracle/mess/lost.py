"""lost: the profiler's buffers overflowed, so that single records are missing, a launch or its kernel."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.mess.kind import MessKind, draw_for, with_mess
from benchmarks.oracle.rank import Rank
from benchmarks.oracle.rows import CALLS, DEVICE, FLOW_END, FLOW_START, Row
from benchmarks.oracle.spec import Mess, Scenario

LEAST, MOST = 0.005, 0.05


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario:
    """Up to one in twenty."""
    return with_mess(scenario, Mess("lost", round(float(np.exp(draw.uniform(np.log(LEAST), np.log(MOST)))), 4)))


def rows(rank: Rank, rows: list[Row], mess: Mess) -> list[Row]:
    """Each record of the device's tracing is lost with the chance `strength`, and its end of the flow with it."""
    chances = draw_for(rank.world, "lost", rank.rank).uniform(size=len(rows))
    gone = {id(row) for row, chance in zip(rows, chances, strict=True)
            if chance < mess.strength and row.correlation and row.category in DEVICE | CALLS}  # fmt: skip
    calls = {row.correlation for row in rows if id(row) in gone and row.category in CALLS}
    device = {row.correlation for row in rows if id(row) in gone and row.category in DEVICE}
    ends = {FLOW_START: calls | device, FLOW_END: calls | device}
    return [row for row in rows if id(row) not in gone and row.correlation not in ends.get(row.phase, ())]


KIND = MessKind("lost", "single records are missing at random", add, rows=rows)
