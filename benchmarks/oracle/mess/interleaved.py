"""interleaved: a pipeline with two chunks of layers per rank, whose bubble is half of what the usual formula says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.oracle.mess.kind import MessKind, with_mess
from benchmarks.oracle.spec import Mess, Scenario


def add(draw: np.random.Generator, scenario: Scenario) -> Scenario | None:
    """Microbatches come in groups as large as the pipeline is deep."""
    parallel = scenario.parallel
    if parallel.kind != "pp" or parallel.pp < 2 or parallel.microbatches % parallel.pp:
        return None
    return with_mess(scenario, Mess("interleaved"), parallel=replace(parallel, schedule="interleaved"))


KIND = MessKind("interleaved", "a pipeline of two chunks per rank", add)
