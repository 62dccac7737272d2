"""foreign: when the recording starts, the stream is busy with work that is not in the file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.rank import Rank
from benchmarks.oracle.rows import FLOW_END, Row
from benchmarks.oracle.spec import Mess, Scenario
from benchmarks.oracle.world import World

SHORTEST_US, LONGEST_US = 3e4, 4e5
DEVICE_ROWS = ("kernel", "gpu_memcpy", "gpu_user_annotation")


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario:
    """Only a script that does not wait for its device leaves its stream that busy."""
    us = float(np.exp(draw.uniform(np.log(SHORTEST_US), np.log(LONGEST_US))))
    return with_mess(scenario, Mess("foreign", round(us, 1)), model=replace(scenario.model, sync="none"))


def world(world: World, mess: Mess) -> None:
    """Every rank's stream is busy for about as long."""
    world.foreign_us = dict.fromkeys(range(world.size), mess.strength)


def rows(rank: Rank, rows: list[Row], mess: Mess) -> list[Row]:
    """Rows without work launched before the recording, with foreign work among them."""
    before = {op.correlation for op in rank.ops if op.step < 0} - {0}
    return [
        row
        for row in rows
        if row.correlation not in before or (row.category not in DEVICE_ROWS and row.phase != FLOW_END)
    ]


KIND = MessKind("foreign", "a stream busy with work that is not in the file", add, world, rows,
                excludes=("ahead", "rdv", "rdv_beside", "cold", "prof"))  # fmt: skip
