"""From which step on a rank is slower against its peers than before: a device that heats up, a neighbour that came.

Method: of all places where the steps can be parted, the one with the widest distance between the slowest step before
and the fastest one after. Steps that differ by chance alone are parted completely with three on each side in one order
of twenty (6 choose 3), so the distance must be clear of the scatter on both sides, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof.tables import Array

FEWEST_STEPS = 3  # on each side
NOISE_FACTOR = 4.0  # standard deviations of the steps on both sides


@dataclass(frozen=True)
class Onset:
    """The first slow step (position), and the median excess over the peers since then: 0.3 is 30 % longer."""

    step: int
    excess: float


def onset(excess: Array, least: float) -> Onset | None:
    """The step at which one rank's excess, shape (steps,), rises by `least` and stays; None without one."""
    steps = len(excess)
    if steps < 2 * FEWEST_STEPS or not np.isfinite(excess).all():
        return None
    highest_before = np.maximum.accumulate(excess)[:-1]
    lowest_after = np.minimum.accumulate(excess[::-1])[::-1][1:]
    places = np.arange(FEWEST_STEPS, steps - FEWEST_STEPS + 1)
    distance = (lowest_after - highest_before)[places - 1]
    at = int(places[np.argmax(distance)])
    before, after = float(np.median(excess[:at])), float(np.median(excess[at:]))
    scatter = np.concatenate((excess[:at] - excess[:at].mean(), excess[at:] - excess[at:].mean()))
    spread = float(np.sqrt((scatter**2).sum() / (steps - 2)))  # of both sides: two means were taken from the steps
    is_clear = distance.max() > 0 and after - before > max(least, NOISE_FACTOR * spread)
    return Onset(at, after) if is_clear and after > least else None
