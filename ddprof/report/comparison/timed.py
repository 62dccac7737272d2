"""Record of how the step changed by the step timers of the whole run, which decide: a traced window is a few steps of
one moment.

The means of some equal parts of each run are compared (batch means, so that steps that follow one another alike are
not counted apart), by Welch's t. Parts that still follow one another count for fewer (AR(1)). Time in which ranks were
ready and had no CPU is the machine's: a change that is no larger may be all of it.
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
    """The mean step of the whole run outside its trace windows; None where too few steps were timed."""
    parts = _parts(report)
    return float(parts.mean()) if len(parts) > 1 else None


def timed_interval(before: Report, after: Report) -> Interval | None:
    """The 95 % interval of the change of that step, us; None where a run has none."""
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
    """The 95 % interval of that step of one run, us; None where it has none."""
    parts = _parts(report)
    if len(parts) < 2:
        return None
    variance, degrees = _of_mean(parts)
    margin = quantile(TAIL, max(1, int(degrees))) * math.sqrt(variance) + waited_us(report)
    return float(parts.mean()) - margin, float(parts.mean()) + margin


def waited_us(report: Report) -> float:
    """Time of the step that may be waiting for a CPU that the machine is to blame for, as far as it was recorded."""
    return WAITED * (report.steps.waited_share or 0.0) * (timed_step_us(report) or report.steps.wall_us)


def _parts(report: Report) -> npt.NDArray[np.float64]:
    parts = np.asarray(report.steps.timed_us, np.float64)
    return parts[np.isfinite(parts)]


def _of_mean(parts: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The variance of the mean of a run's parts, and its degrees of freedom."""
    rest = parts - parts.mean()
    power = float(rest @ rest)
    follows = max(0.0, float(rest[1:] @ rest[:-1]) / power) if power > 0 else 0.0
    count = max(2.0, len(parts) * (1 - follows) / (1 + follows))
    return power / (len(parts) - 1) / count, count - 1
