"""partial: only some ranks were traced; no culprit is among the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.spec import Mess, Scenario

# Faults that the traced ranks show for certain: what traffic costs, or who is late when it changes, needs all ranks.
NEEDS_NO_OTHERS = ("straggler.compute", "straggler.host", "input.", "host.", "compute.", "memory.", "imbalance.hot")
COMPARES = ("straggler.", "imbalance.", "input.straggler")  # told by a peer: two ranks must be left


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario | None:
    """One to half of the ranks that nobody blames."""
    blamed = {rank for fault in scenario.faults for rank in fault.ranks}
    innocent = [rank for rank in range(scenario.cluster.world) if rank not in blamed]
    most = min(scenario.cluster.world // 2, len(innocent))
    told = all(fault.id.startswith(NEEDS_NO_OTHERS) for fault in scenario.faults)
    if any(fault.id.startswith(COMPARES) for fault in scenario.faults):
        most = min(most, scenario.cluster.world - 2)
    if most < 1 or scenario.parallel.kind == "pp" or not told:
        return None
    gone = tuple(sorted(int(r) for r in draw.choice(innocent, int(draw.integers(1, most + 1)), replace=False)))
    return with_mess(replace(scenario, missing_ranks=gone), Mess("partial", float(len(gone)), gone))


KIND = MessKind("partial", "some ranks were not traced", add)
