"""Parts of a mess: where it fits, and its effect on the job, the simulation, a file's rows or its bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.oracle.draws import generator
from benchmarks.oracle.rank import Rank
from benchmarks.oracle.rows import Row
from benchmarks.oracle.spec import Mess, Scenario
from benchmarks.oracle.world import World

Add = Callable[[np.random.Generator, Scenario], Scenario | None]
STARTUP_IDS = ("host.cold_start", "host.startup", "run.startup", "startup.cold", "startup.cost")
RECURRING_IDS = ("host.allocator", "host.launch_bound", "input.starved", "straggler.host", "straggler.imbalance")


def same_world(world: World, mess: Mess) -> None:
    """The simulation stays as it is."""


def same_rows(rank: Rank, rows: list[Row], mess: Mess) -> list[Row]:
    """The file stays as it is."""
    return rows


def same_bytes(rank: int, data: bytes, mess: Mess) -> bytes:
    """The bytes stay as they are."""
    return data


def no_health(mess: Mess) -> list[dict[str, Any]]:
    """Nothing that a reader should name."""
    return []


@dataclass(frozen=True)
class MessKind:
    """One kind of mess.

    `add` returns the scenario with the mess, None where it does not fit. `once`: its cost occurs in one step, and no
    finding may sell it as recurring. `unbooked`: the files do not show enough to book the ledger by.
    """

    name: str
    what: str
    add: Add
    world: Callable[[World, Mess], None] = same_world
    rows: Callable[[Rank, list[Row], Mess], list[Row]] = same_rows
    cut: Callable[[int, bytes, Mess], bytes] = same_bytes
    health: Callable[[Mess], list[dict[str, Any]]] = no_health
    once: bool = False
    unbooked: bool = False
    tolerates: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()


def with_mess(scenario: Scenario, mess: Mess, **changes: Any) -> Scenario:
    """The scenario with one mess more, and with other settings."""
    return replace(scenario, mess=(*scenario.mess, mess), **changes)


def draw_for(world: World, mess: str, rank: int) -> np.random.Generator:
    """Random numbers of a mess on a rank."""
    return generator(world.seed, "mess " + mess, rank)
