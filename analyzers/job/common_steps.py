"""The steps that all ranks hold: what can be compared between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.model import HealthNote


def common_steps(ranks: Sequence[RankFacts]) -> tuple[tuple[RankFacts, ...], list[HealthNote]]:
    """The ranks, each with the steps whose numbers all of them recorded.

    Left as they are where steps are not marked by the profiler's numbers, or where fewer than half of the longest
    rank's steps are common. Tables other than the steps still cover each rank's whole window.
    """
    unchanged = tuple(ranks)
    if len(ranks) < 2 or any(f.step_source != "profiler_step" or not len(f.steps) for f in ranks):
        return unchanged, []
    numbers = [frozenset(f.steps["index"].tolist()) for f in ranks]
    common = frozenset.intersection(*numbers)
    longest = max(map(len, numbers))
    if len(set(numbers)) == 1 or len(common) * 2 < longest:
        return unchanged, []
    wanted = np.array(sorted(common), np.int64)
    cut = tuple(replace(f, steps=f.steps.take(np.flatnonzero(np.isin(f.steps["index"], wanted)))) for f in ranks)
    issue = f"ranks hold different steps: {min(map(len, numbers))} to {longest}"
    return cut, [HealthNote(issue, f"only the {len(common)} that all of them recorded are used", "info")]
