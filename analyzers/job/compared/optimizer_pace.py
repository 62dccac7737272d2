"""How fast a CPU rank runs, apart from what it is fed: by the operators of its optimizer.

The optimizer works on parameters, of which ranks have equal shares. A slow CPU takes longer for them and for the passes
alike; a larger batch, for the passes only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddprof import averages, intervals
from ddprof.analyzers.facts.host import phase_times
from ddprof.analyzers.facts.model import NO_STRING, Phase, RankFacts
from ddprof.analyzers.facts.work import host_work
from ddprof.tables import Array

MIN_UPDATE_NS = 100_000  # the profiler adds some microseconds to each operator: less is not its own time


def passes_over_optimizer(ranks: Sequence[RankFacts]) -> Array | None:
    """Time of the passes over that of the optimizer, against the typical rank's, shape (ranks,): what a rank was fed
    more than its peers. None where shapes tell it better, and where the optimizer is not marked or too short."""
    found = []
    for facts in ranks:
        if not len(facts.host_operators) or not len(facts.steps) or (facts.host_operators["shape"] != NO_STRING).any():
            return None
        work = host_work(facts)
        updating = intervals.intersect(work, phase_times(facts.phases)[Phase.OPTIMIZER])
        each_ns = intervals.overlap(updating, *facts.steps.bounds)
        passes_ns = intervals.overlap(work, *facts.steps.bounds) - each_ns
        update_ns, pass_ns = averages.typical(each_ns), averages.typical(passes_ns)
        if update_ns < MIN_UPDATE_NS:
            return None
        found.append(pass_ns / update_ns)
    return np.array(found) / averages.typical(found) if len(found) > 1 else None
