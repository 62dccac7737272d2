"""rdv: hosts wait for one another each step and leave no event (a barrier over CPU sockets, gathered objects)."""

from __future__ import annotations

import numpy as np

from benchmarks.oracle.mess.kind import Add, MessKind, with_mess
from benchmarks.oracle.spec import Mess, Scenario
from benchmarks.oracle.world import World


def adding(name: str) -> Add:
    """`add` of one of the two kinds: data parallel replicas, of which there are several."""

    def add(draw: np.random.Generator, scenario: Scenario) -> Scenario | None:
        fits = scenario.parallel.kind == "ddp" and scenario.cluster.world > 1 and scenario.model.sync != "none"
        return with_mess(scenario, Mess(name)) if fits else None

    return add


def instead(world: World, mess: Mess) -> None:
    """No collective is in the files."""
    world.rendezvous = "instead"


def beside(world: World, mess: Mess) -> None:
    """Gradients are reduced as ever, and the hosts meet besides."""
    world.rendezvous = "beside"


KIND = MessKind("rdv", "a rendezvous that leaves no collective in the trace", adding("rdv"), instead, unbooked=True,
                excludes=("rdv_beside", "bcast", "sampled"))  # fmt: skip
BESIDE = MessKind("rdv_beside", "a barrier of the hosts beside the collectives", adding("rdv_beside"), beside,
                  unbooked=True)  # fmt: skip
