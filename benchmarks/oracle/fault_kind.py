"""Draws of a fault: suitable jobs, strength, and the evidence it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.oracle.spec import Fault, Scenario

Maker = Callable[[np.random.Generator, Scenario], Fault | None]
DATA = ("ddp", "ddp", "fsdp", "tpdp", "hsdp")


@dataclass(frozen=True)
class Kind:
    """A fault that can be put on jobs of some parallelisms. `bounds` limit the strength that is searched."""

    make: Maker
    parallel: tuple[str, ...]
    bounds: tuple[float, float] | None  # None: the strength is drawn, not searched
    max_share: float = 0.45
    world: int = 0
    max_world: int = 64
    shapes: bool = False  # the evidence needs `record_shapes`
    stacks: bool = False  # the evidence needs `with_stack`
    memory: bool = False  # the evidence needs `profile_memory`
    arch: str = ""  # of the model that the fault needs
    small: bool = False  # small kernels: the base is close to launch bound by nature


def some_ranks(draw: np.random.Generator, scenario: Scenario) -> tuple[int, ...]:
    """One rank, sometimes two or a host, never most of them."""
    world = scenario.cluster.world
    hosts = list(dict.fromkeys(scenario.cluster.hosts))
    if len(hosts) >= 3 and draw.uniform() < 0.3:  # a whole host
        slow = hosts[int(draw.integers(len(hosts)))]
        return tuple(rank for rank, host in enumerate(scenario.cluster.hosts) if host == slow)
    count = 2 if world >= 8 and draw.uniform() < 0.25 else 1
    return tuple(sorted(int(r) for r in draw.choice(world, count, replace=False)))
