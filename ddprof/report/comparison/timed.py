"""Change of the step by step timers of the whole run, which outvote a traced window of a few steps.

Each run is divided into equal parts, and the means of the parts are compared by Welch's t (batch means, which allow for
correlated steps). Parts that are still correlated count for fewer (AR(1)). Where ranks were ready but had no CPU, a
change no larger than that time may be due to the machine.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ddprof.report.model import Report
from ddprof.significance import TAIL, quantile

# Of the time that ranks waited for a CPU, what may be the machine's part of a change. Swept on 101 jobs of two ranks on
# a busy machine (2026-11-24), first half of each against the second: at 0, 0.25, 0.5, 0.75, 1 of it 15, 8, 5, 1, 1 are
# called different; of gains of 50 % 71, 61, 45, 34, 23 are.
WAITED = 0.75

Interval = tuple[float, float]


def timed_step_us(report: Report) -> float | None:
    """Mean step outside the trace windows, us; None where too few steps were timed."""
    parts = _parts(report)
    return float(parts.mean()) if len(parts) > 1 else None


def timed_interval(before: Report, after: Report) -> Interval | None:
    """95 % interval of the change of that mean, us; None where a run has none."""
    first, second = _parts(before), _parts(after)
    if min(len(first), len(second)) < 2:
        return None
    change = float(second.mean() - first.mean())
    variances = [_of_mean(parts) for parts in (first, second)]
    total = sum(variance for variance, _ in variances)
    weights = sum(variance**2 / degrees for variance, degrees in variances)
    degrees = max(1, int(total**2 / weights)) if weights > 0 else len(first) + len(second) - 2
    margin = quantile(TAIL, degrees) * math.sqrt(total) + max(waited_us(before), waited_us(after))
    return change - margin, change + margin


def timed_mean_interval(report: Report) -> Interval | None:
    """95 % interval of that mean of one run, us; None where it has none."""
    parts = _parts(report)
    if len(parts) < 2:
        return None
    variance, degrees = _of_mean(parts)
    margin = quantile(TAIL, max(1, int(degrees))) * math.sqrt(variance) + waited_us(report)
    return float(parts.mean()) - margin, float(parts.mean()) + margin


def waited_us(report: Report) -> float:
    """Part of the step that ranks may have waited for a CPU, us per step; 0 where it was not recorded."""
    return WAITED * (report.steps.waited_share or 0.0) * (timed_step_us(report) or report.steps.wall_us)


def _parts(report: Report) -> npt.NDArray[np.float64]:
    parts = np.asarray(report.steps.timed_us, np.float64)
    return parts[np.isfinite(parts)]


def _of_mean(parts: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Variance of the mean over a run's parts, and its degrees of freedom."""
    rest = parts - parts.mean()
    power = float(rest @ rest)
    follows = max(0.0, float(rest[1:] @ rest[:-1]) / power) if power > 0 else 0.0
    count = max(2.0, len(parts) * (1 - follows) / (1 + follows))
    return power / (len(parts) - 1) / count, count - 1
