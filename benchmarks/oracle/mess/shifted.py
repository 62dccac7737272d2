"""shifted: ranks recorded windows a step or two apart; the label is about the steps that all of them recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.rank import Rank
from benchmarks.oracle.rows import Row
from benchmarks.oracle.spec import Mess, Scenario
from benchmarks.oracle.world import World

MARK_SLACK_US = 0.6  # marks are a microsecond apart


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario | None:
    """Two further steps, of which some ranks lack the first and others the last."""
    if scenario.cluster.world < 2:
        return None
    lacks = [str(draw.choice(["first", "last", "none"])) for _ in range(scenario.cluster.world)]
    lacks[0], lacks[-1] = "last", "first"
    detail: dict[str, float | str | bool] = {str(rank): lack for rank, lack in enumerate(lacks)}
    return with_mess(replace(scenario, steps=scenario.steps + 2), Mess("shifted", detail=detail))


def world(world: World, mess: Mess) -> None:
    """The first and the last steady step are not everybody's."""
    world.uncounted |= {0, world.steps - 1}


def rows(rank: Rank, rows: list[Row], mess: Mess) -> list[Row]:
    """Only what starts in the rank's own window."""
    lack = mess.detail[str(rank.rank)]
    begin = rank.marks[1] - MARK_SLACK_US if lack == "first" else -1e18
    end = rank.marks[-2] - MARK_SLACK_US if lack == "last" else 1e18
    return [row for row in rows if begin <= row.start < end]


KIND = MessKind("shifted", "ranks recorded different windows", add, world, rows,
                excludes=("ahead", "foreign", "cold", "prof", "bcast", "oneoff", "val"))  # fmt: skip
