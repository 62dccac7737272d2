"""nomarks, renamed, nested, devicemarks: step ranges missing, named otherwise, with others inside, on devices alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.rank import Rank
from benchmarks.oracle.rows import Row
from benchmarks.oracle.spec import Mess, Scenario

NAMES = ("train_step", "iteration {}", "step_{}", "## train iter {} ##")
LEVEL_US = 0.3


def add_nomarks(draw: np.random.Generator, scenario: Scenario) -> Scenario:
    """No step is marked."""
    return with_mess(scenario, Mess("nomarks"))


def nomarks(rank: Rank, rows: list[Row], mess: Mess) -> list[Row]:
    """The rows without step ranges."""
    return [row for row in rows if not row.is_mark]


def add_renamed(draw: np.random.Generator, scenario: Scenario) -> Scenario:
    """Steps are marked by the script, with a name of its own."""
    return with_mess(scenario, Mess("renamed", detail={"name": NAMES[int(draw.integers(len(NAMES)))]}))


def renamed(rank: Rank, rows: list[Row], mess: Mess) -> list[Row]:
    """Step ranges with the script's names."""
    name = str(mess.detail["name"])
    return [row._replace(name=name.format(row.name.split("#")[-1])) if row.is_mark else row for row in rows]


def add_nested(draw: np.random.Generator, scenario: Scenario) -> Scenario:
    """Ranges inside the step ranges."""
    return with_mess(scenario, Mess("nested"))


def nested(rank: Rank, rows: list[Row], mess: Mess) -> list[Row]:
    """In each step of the host one range as long, and one that leaves the first thousandth out."""
    inner = []
    for row in rows:
        if row.is_mark and row.category == "user_annotation":
            number, late = row.name.split("#")[-1], 1e-3 * row.dur
            inner.append(row._replace(name=f"epoch_0_batch_{number}", start=row.start + LEVEL_US,
                                      dur=row.dur - 2 * LEVEL_US))  # fmt: skip
            inner.append(row._replace(name="train_loop_inner", start=row.start + late, dur=row.dur - 2.0 * late))
    return rows + inner


def add_devicemarks(draw: np.random.Generator, scenario: Scenario) -> Scenario:
    """The host's ranges are missing, the device's are there."""
    return with_mess(scenario, Mess("devicemarks"))


def devicemarks(rank: Rank, rows: list[Row], mess: Mess) -> list[Row]:
    """The rows without the host's step ranges."""
    return [row for row in rows if not (row.is_mark and row.category == "user_annotation")]


def unmarked(mess: Mess) -> list[dict[str, Any]]:
    """Rows without step marks, and the name that a reader should give."""
    return [{"issue": "no_step_marks", "rank": None}]


_ALL = ("nomarks", "renamed", "nested", "devicemarks")
NOMARKS = MessKind("nomarks", "no step is marked", add_nomarks, rows=nomarks, health=unmarked, excludes=_ALL[1:])
RENAMED = MessKind("renamed", "steps are marked by a name of the script", add_renamed, rows=renamed,
                   excludes=("nomarks", "nested", "devicemarks"))  # fmt: skip
NESTED = MessKind("nested", "ranges inside the step marks", add_nested, rows=nested,
                  excludes=("nomarks", "renamed", "devicemarks"))  # fmt: skip
DEVICE = MessKind("devicemarks", "steps are marked on the device alone", add_devicemarks, rows=devicemarks,
                  excludes=_ALL[:3])  # fmt: skip
