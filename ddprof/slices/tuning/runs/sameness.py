"""Do two runs train the same? Parameters of each rank after the same number of steps, bit by bit.

Where the baseline does not repeat itself bit by bit (atomic sums of a device, random augmentation in workers) no
setting can be held to it: then how far a run is from the baseline is held against how far baselines are from each
other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ddprof.trials.answer import Results
from ddprof.trials.model import Held

# Rounding grows by orders of magnitude in training, so no more than the order of magnitude is compared.
SAME_ORDER = 10.0
UNKNOWN = Results("unknown", None, None, None)


def compare(trial: Mapping[str, Held], baselines: Sequence[Mapping[str, Held]]) -> Results:
    """Compare a run with the baselines so far, rank by rank."""
    comparable = [baseline for baseline in baselines if set(baseline) & set(trial)]
    if not trial or not comparable:
        return UNKNOWN
    if any(_are_equal(trial, baseline) for baseline in comparable):
        return Results("same", 0.0, None, None)
    pairs = [(first, second) for number, first in enumerate(comparable) for second in comparable[:number]]
    if not pairs:
        return UNKNOWN  # whether the baseline repeats itself is not known yet
    distance = min(_distance(trial, baseline) for baseline in comparable)
    among = max(_distance(*pair) for pair in pairs)
    repeats = any(_are_equal(*pair) for pair in pairs)
    kind = "like_baseline" if not repeats and distance <= among * SAME_ORDER else "differs"
    return Results(kind, distance, among, _losses(trial, comparable[-1]))


def _are_equal(first: Mapping[str, Held], second: Mapping[str, Held]) -> bool:
    return set(first) == set(second) and all(first[rank].digest == second[rank].digest for rank in first)


def _distance(first: Mapping[str, Held], second: Mapping[str, Held]) -> float:
    """Relative distance of the sampled values: norm of their difference over their own."""
    apart: list[float] = []
    size: list[float] = []
    for rank in set(first) & set(second):
        a, b = first[rank].sample, second[rank].sample
        if len(a) != len(b):
            return math.inf
        apart += (x - y for x, y in zip(a, b, strict=True))
        size += b
    # hypot: the squares of diverged parameters may be no floats any more.
    norm, own = math.hypot(*apart), math.hypot(*size)
    return norm / own if own else (math.inf if norm else 0.0)


def _losses(first: Mapping[str, Held], second: Mapping[str, Held]) -> tuple[float, float] | None:
    for rank in sorted(set(first) & set(second), key=int):
        loss, other_loss = first[rank].loss, second[rank].loss
        if loss is not None and other_loss is not None:
            return loss, other_loss
    return None
