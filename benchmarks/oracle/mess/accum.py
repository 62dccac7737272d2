"""accum: several batches, forward and backward passes in a step of the optimizer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.spec import Mess, Scenario

MOST = 4


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario | None:
    """Two to four micro-steps, each with a batch of its own."""
    if scenario.parallel.kind not in ("ddp", "tpdp"):
        return None
    count = int(draw.integers(2, MOST + 1))
    model = replace(scenario.model, accumulation=count, batch_per_micro_step=True)
    loader = replace(scenario.loader, cost_us=scenario.loader.cost_us * 0.7)
    return with_mess(scenario, Mess("accum", float(count)), model=model, loader=loader)


KIND = MessKind("accum", "micro-steps inside the optimizer's step", add)
