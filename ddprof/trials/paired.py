"""A sequential test on pairs of runs, with and without a setting, one after the other: is the job faster with it?

The unit is the run, not the step: steps of one run share its machine, its moment and its memory layout, and what varies
from run to run would pass for a gain. Of each pair the logarithm of the ratio of the two step times is kept: what slows
both runs drops out.

The test may be looked at after any of `LOOKS` pairs and ended there. Each look spends the same part of the error that
is allowed over all of them (Bonferroni; Jennison and Turnbull, Group Sequential Methods, 2000, chapter 2), so its
intervals hold at all looks together, whenever it is ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from ddprof import significance
from ddprof.findings import WARNING_SHARE
from ddprof.trials.document import MeasuredGain

LOOKS = (3, 4, 5, 6, 8, 10)  # pairs
MOST_PAIRS = LOOKS[-1]
ERROR = 0.05  # of any look, two-sided
LEAST_GAIN = WARNING_SHARE  # of the step: below this a finding is "info", and nothing is recommended for it
_EARLY_PAIRS = 2  # from which on a loser in every pair is not tried again
_POWER_TAIL = 0.2  # a gain of the smallest size that is told is seen in four of five attempts

WON, LOST, OPEN = "won", "lost", "open"


def gain(logs: Sequence[float], error: float = ERROR) -> MeasuredGain | None:
    """The gain of pairs, each as log(step with / step without). None without a pair."""
    if not logs:
        return None
    half = half_width(logs, error)
    mean = fmean(logs)
    if half is None:
        return MeasuredGain(_share(mean), None, None, len(logs))
    return MeasuredGain(_share(mean), _share(mean + half), _share(mean - half), len(logs))


def half_width(logs: Sequence[float], error: float = ERROR) -> float | None:
    """Half the width of the interval of the mean log, valid at all looks; None before the first look."""
    if len(logs) < LOOKS[0]:
        return None
    return significance.half_width(logs, error / len(LOOKS) / 2)


def outcome(logs: Sequence[float], error: float = ERROR, least_share: float = LEAST_GAIN) -> str:
    """WON: faster beyond doubt by a worthwhile gain; LOST: not worthwhile; OPEN: more pairs may decide.

    A setting that gains too little in every one of its pairs is given up after two. That can only lose a winner, never
    make one, and a winner whose gain is clearly above the noise of a pair loses no two of them.
    """
    measured = gain(logs, error)
    if measured is None or measured.pairs < _EARLY_PAIRS:
        return OPEN
    if all(_share(log) < least_share for log in logs):
        return LOST
    if measured.low is None or measured.high is None:
        return OPEN
    if measured.low > 0 and measured.share >= least_share:
        return WON
    return LOST if measured.high < least_share or measured.pairs >= MOST_PAIRS else OPEN


def looks_at(pairs: int) -> bool:
    """True where the test is evaluated after this many pairs."""
    return pairs in LOOKS or pairs == _EARLY_PAIRS


def smallest_seen(logs: Sequence[float], error: float = ERROR) -> float | None:
    """Smallest gain (share of the step) that this many pairs with this noise would show; None where unknown."""
    half = half_width(logs, error)
    if half is None:
        return None
    return _share(-(half + significance.half_width(logs, _POWER_TAIL)))


def scatter_borne(share: float, pairs: int, error: float = ERROR) -> float:
    """Largest standard deviation of pairs (share of the step) with which this many pairs show such a gain."""
    spread = [place - (pairs - 1) / 2 for place in range(pairs)]
    seen = smallest_seen([place / stdev(spread) for place in spread], error)
    if seen is None:
        raise ValueError(f"{pairs} pairs are never looked at")
    return math.log(1 - share) / math.log(1 - seen)


def _share(log: float) -> float:
    return 1 - math.exp(log)
