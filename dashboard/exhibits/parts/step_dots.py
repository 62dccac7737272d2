"""The step dot plot: one dot per step and rank, so that a step or a rank that stands out is seen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from ddprof.dashboard.exhibits.parts import numbers
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, Way, following, sheet
from ddprof.dashboard.exhibits.parts.numbers import rank_steps_us
from ddprof.dashboard.figures.charts import Dots
from ddprof.dashboard.runs.view import View
from ddprof.report import phrases
from ddprof.tables import Array
from ddprof.units import format_us

MAX_DOTS = 2_000
OUTLIER_SPREADS = 5.0  # median absolute deviations off the median: 1 in 1,000 of normally spread steps lies outside
LEAST_OUTLIER_SHARE = 0.05  # of the median: less is no reason to look
_QUESTION = "Is it steady, or does a step or a rank stand out?"


def step_dots(view: View) -> Exhibit | None:
    """Dots of all ranks; of the job as a whole for a saved report; None where no step was measured."""
    job_us = view.opened.report.steps.per_step_us
    if not job_us:
        return None
    if not view.opened.has_traces:
        dots = _of_job(view, job_us)
        return dots and following(dots, "steps")
    dots = _by_rank(view, job_us)
    return dots and following(dots, "ranks", "steps")


def _of_job(view: View, job_us: tuple[float, ...]) -> Exhibit | None:
    steps = [i for i, value in enumerate(job_us) if view.shows_step(i) and value == value]
    if not steps:
        return None
    values = np.array([job_us[i] for i in steps]) / 1e3
    table = sheet(("step", "job (ms)"), zip(steps, values.tolist(), strict=True))
    reading = _reading(view, job_us)
    outliers = _outliers(values)
    dots = Dots(steps, values.tolist(), float(np.median(values)), None, outliers.tolist())
    return Exhibit("steps", _QUESTION, reading, table, dots if len(steps) > 1 else None)


def _by_rank(view: View, job_us: tuple[float, ...]) -> Exhibit | None:
    job = view.opened.job
    times_ms = rank_steps_us(job) / 1e3
    steps = [s for s in range(times_ms.shape[1]) if view.shows_step(s)]
    positions = numbers.positions(view)
    if not steps or not positions:
        return None
    values = times_ms[np.ix_(positions, steps)].T.reshape(-1)
    of_step = np.repeat(steps, len(positions))
    of_rank = np.tile([job.rank_ids[p] for p in positions], len(steps))
    of_job = [job_us[s] / 1e3 if s < len(job_us) else None for s in of_step.tolist()]
    rows = zip(of_step.tolist(), of_rank.tolist(), values.tolist(), of_job, strict=True)
    table = sheet(("step", "rank", "time (ms)", "job (ms)"), rows)
    reading = _reading(view, job_us)
    outliers = _outliers(values)
    if len(outliers):
        worst = int(outliers[np.abs(values[outliers] - np.median(values)).argmax()])
        reading += (
            f" {len(outliers)} of {len(values)} dots stand out, farthest rank {of_rank[worst]} in step "
            f"{of_step[worst]}: {format_us(values[worst] * 1e3)}."
        )
    drawn = _drawn(values)
    if len(drawn) < len(values):
        reading += f" Drawn: {len(drawn)} of {len(values)} dots, those farthest off among them; the table has all."
    places = np.flatnonzero(np.isin(drawn, outliers)).tolist()
    dots = Dots(
        of_step[drawn].tolist(), values[drawn].tolist(), float(np.median(values)), of_rank[drawn].tolist(), places
    )
    return Exhibit("steps", _QUESTION, reading, table, dots if len(values) > 1 else None, ways=_ways(steps, job_us))


def _ways(steps: Sequence[int], job_us: Sequence[float]) -> tuple[Way, ...]:
    """To the longest of the steps."""
    known = [step for step in steps if step < len(job_us) and math.isfinite(job_us[step])]
    if len(known) < 2:
        return ()
    longest = max(known, key=lambda step: job_us[step])
    return (
        Way(f"Longest: step {longest}, in the timeline", "/timeline", (("steps", str(longest)),)),
        Way("What makes it long", "/ranks"),
    )


def _reading(view: View, job_us: Sequence[float]) -> str:
    """About the job's own steps, whatever ranks are shown."""
    known = [value for i, value in enumerate(job_us) if view.shows_step(i) and math.isfinite(value)]
    if not known:
        return "No step of the whole job was measured."
    if len(known) == 1:
        return f"One step was seen, {format_us(known[0])}: nothing can be said of its spread."
    spread = phrases.step_spread(view.opened.report)
    words = f"The median of {len(known)} steps is {format_us(statistics.median(known))}"
    return words + (f", spread ±{spread * 100:.1f} %." if spread is not None else ".")


def _outliers(values: Array) -> Array:
    """Places of values far off the median, by the median absolute deviation."""
    distance = np.abs(values - np.median(values))
    least = max(OUTLIER_SPREADS * float(np.median(distance)), LEAST_OUTLIER_SHARE * float(np.median(values)))
    return np.flatnonzero(distance > least)


def _drawn(values: Array) -> Array:
    """Places of at most MAX_DOTS dots: half of them those farthest off, half evenly spread."""
    if len(values) <= MAX_DOTS:
        return np.arange(len(values))
    half = MAX_DOTS // 2
    far = np.argsort(-np.abs(values - np.median(values)), kind="stable")[:half]
    even = np.linspace(0, len(values) - 1, half).astype(np.int64)
    return np.union1d(far, even)
