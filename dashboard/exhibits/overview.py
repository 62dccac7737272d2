"""Overview: is it steady, and which rank differs?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ddprof.analyzers.job.model import JobFacts
from ddprof.causes import CAUSES
from ddprof.dashboard.exhibits.parts import numbers
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, Way, following, sheet
from ddprof.dashboard.exhibits.parts.numbers import rank_steps_us
from ddprof.dashboard.figures.charts import Dots, Heat
from ddprof.dashboard.runs.view import View
from ddprof.findings import CRITICAL_SHARE, Finding
from ddprof.report import phrases
from ddprof.report.bar import shares
from ddprof.report.html.parts import NAMED_MARK
from ddprof.report.model import Report
from ddprof.tables import Array
from ddprof.units import format_us

MAX_RANKS = 24  # lines that are read at a glance; the ledger's table holds more
ALIKE_POINTS = 1.0  # percentage points of the step: ranks that differ by less are alike
LEAST_SHARE = 0.005  # of the step: a cause below this on every rank is no column
MAX_DOTS = 2_000  # what a browser draws at once without delay
OUTLIER_SPREADS = 5.0  # median absolute deviations off the median: 1 in 1,000 of normally spread steps lies outside
LEAST_OUTLIER_SHARE = 0.05  # of the median: less is no reason to look
_QUESTION = "Is it steady, or does a step or a rank stand out?"


def exhibits(view: View) -> list[Exhibit]:
    """The two small charts."""
    return [e for e in (step_dots(view), rank_causes(view)) if e is not None]


def rank_causes(view: View) -> Exhibit | None:
    """Ranks against causes in percent of each rank's step, coloured by the distance to the typical peer."""
    deviation = _deviation(view.opened.report, view.shows)
    if deviation is None:
        return None
    heads = [CAUSES[c].label for c in deviation.causes]
    names = [f"rank {r}" + (NAMED_MARK if r in deviation.named else "") for r in deviation.ranks]
    percent, points = deviation.percent, deviation.points
    if len(names) < deviation.of:
        names.append(f"{deviation.of - len(names)} other ranks (median)")
        percent = np.vstack([percent, percent[0] - points[0]])
        points = np.vstack([points, np.zeros(len(heads))])
    chart = Heat(percent, heads, names, "%", 100.0 * CRITICAL_SHARE, diverging=True, shade=points)
    rows = [
        (r, *(100 * row.get(c, 0.0) / max(row.get("wall_us", 0.0), 1e-9) for c in CAUSES))
        for r, row in sorted(view.opened.report.ledger.per_rank.items())
        if view.shows(r)
    ]
    table = sheet(("rank", *(f"{CAUSES[c].label} (%)" for c in CAUSES)), rows)
    reading, ways = _difference(deviation, heads), _ways(view, deviation)
    return Exhibit("rank-causes", "Which rank differs?", reading, table, chart, ("ranks",), ways=ways)


def _ways(view: View, deviation: _Deviation) -> tuple[Way, ...]:
    """Links to the rank that deviates most, and to the rank that is late."""
    if not view.opened.has_traces or deviation.of == 1:
        return ()
    line, _ = _farthest(deviation)
    rank = deviation.ranks[line]
    if rank not in deviation.culprits:
        rank = next((r for r in deviation.ranks if r in deviation.culprits), rank)
    return (
        Way(f"Rank {rank} in the timeline", "/timeline", (("open", str(rank)),)),
        Way("Who comes late, and why", "/ranks"),
    )


def _farthest(deviation: _Deviation) -> tuple[int, int]:
    """Row and column of the cell that deviates most, of the culprits where they deviate (others only wait)."""
    points, is_culprit = deviation.points, np.isin(deviation.ranks, deviation.culprits)
    of_culprits = np.where(is_culprit[:, None], points, -np.inf)
    off = of_culprits if of_culprits.max() >= ALIKE_POINTS else np.abs(points)
    line, column = np.unravel_index(int(off.argmax()), off.shape)
    return int(line), int(column)


def _difference(deviation: _Deviation, heads: list[str]) -> str:
    if deviation.of == 1:
        return "One rank was traced."
    line, column = _farthest(deviation)
    percent, points = deviation.percent[line, column], deviation.points[line, column]
    if abs(points) < ALIKE_POINTS:
        return "All ranks are alike, within 1 % of the step."
    whose = "the other" if deviation.of == 2 else "the median rank"
    words = (
        f"Percent of the step. Rank {deviation.ranks[line]} differs most, in {heads[column]}: "
        f"{percent:.0f} % against {percent - points:.0f} % on {whose}."
    )
    words += f"{NAMED_MARK} is named by a finding." if deviation.named & set(deviation.ranks) else ""
    return words + phrases.beside_words(deviation.culprit, deviation.ranks[line], "the share of a cause")


@dataclass(frozen=True)
class _Deviation:
    """Percent of the step by rank and cause, and percentage points above the typical peer; both (ranks, causes).

    The typical peer is the median rank; of two ranks, the other one.
    """

    ranks: list[int]
    causes: list[str]
    percent: Array
    points: Array
    named: frozenset[int]  # ranks of findings
    culprit: tuple[int, Finding] | None
    of: int  # ranks there are

    @property
    def culprits(self) -> tuple[int, ...]:
        """Ranks to look at first."""
        return self.culprit[1].ranks if self.culprit else ()


def _deviation(report: Report, shows: Callable[[int], bool]) -> _Deviation | None:
    """The ranks that `shows` admits; of many those that findings name and that deviate most. None without a ledger."""
    by_rank = {r: shares(row) for r, row in sorted(report.ledger.per_rank.items()) if shows(r)}
    causes = [c for c in CAUSES if any(row.get(c, 0.0) >= LEAST_SHARE for row in by_rank.values())]
    if not causes:
        return None
    ranks, named = np.array(list(by_rank)), frozenset(r for f in report.findings for r in f.ranks)
    percent = 100 * np.array([[row.get(c, 0.0) for c in causes] for row in by_rank.values()])
    points = percent - (percent[::-1] if len(ranks) == 2 else np.median(percent, axis=0))
    chosen = _most_different(points, np.isin(ranks, list(named)))
    shown = (ranks[chosen].tolist(), causes, percent[chosen], points[chosen])
    return _Deviation(*shown, named, report.culprit(), len(ranks))


def _most_different(points: Array, is_named: Array) -> Array:
    """Positions of the ranks to show, in order."""
    distance = np.abs(points).max(axis=1)
    order = np.lexsort((-distance, ~is_named))
    if len(order) > numbers.FEW_LINES:
        apart = is_named | (distance > numbers.APART * np.median(distance))
        order = order[apart[order]] if apart.any() else order[:1]
    return np.sort(order[:MAX_RANKS])


def step_dots(view: View) -> Exhibit | None:
    """Dots of all ranks; of the job as a whole for a saved report; None where no step was measured."""
    job_us = view.opened.report.steps.per_step_us
    if not job_us:
        return None
    has_traces = view.opened.has_traces
    dots = _by_rank(view, job_us) if has_traces else _of_job(view, job_us)
    return dots and following(dots, *["ranks"] * has_traces, "steps")


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
    values = times_ms[np.ix_(positions, steps)].T.reshape(-1)
    held = np.isfinite(values)
    if not held.any():
        return None
    values, of_step = values[held], np.repeat(steps, len(positions))[held]
    of_rank = np.tile([job.rank_ids[p] for p in positions], len(steps))[held]
    of_job = [job_us[s] / 1e3 if s < len(job_us) else None for s in of_step.tolist()]
    rows = zip(of_step.tolist(), of_rank.tolist(), values.tolist(), of_job, strict=True)
    table = sheet(("step", "rank", "time (ms)", "job (ms)"), rows)
    reading = _reading(view, job_us)
    outliers = _outliers(values)
    if len(outliers):
        worst = int(outliers[np.abs(values[outliers] - np.median(values)).argmax()])
        reading += (
            f" {len(outliers)} of {len(values)} dots stand out, farthest rank {of_rank[worst]} in "
            f"{numbers.step_name(job, int(of_step[worst]))}: {format_us(values[worst] * 1e3)}."
        )
    drawn = _drawn(values)
    if len(drawn) < len(values):
        reading += f" Drawn: {len(drawn)} of {len(values)} dots, those farthest off among them; the table has all."
    places = np.flatnonzero(np.isin(drawn, outliers)).tolist()
    measured_ms = [ms for ms in of_job if ms is not None and math.isfinite(ms)]
    # The median of the job, as in the words.
    median_ms = statistics.median(measured_ms) if measured_ms else float(np.median(values))
    dots = Dots(of_step[drawn].tolist(), values[drawn].tolist(), median_ms, of_rank[drawn].tolist(), places)
    chart, ways = dots if len(values) > 1 else None, _step_ways(job, steps, job_us)
    return Exhibit("steps", _QUESTION, reading, table, chart, ways=ways)


def _step_ways(job: JobFacts, steps: Sequence[int], job_us: Sequence[float]) -> tuple[Way, ...]:
    """Link to the longest of the steps."""
    measured = [step for step in steps if step < len(job_us) and math.isfinite(job_us[step])]
    if len(measured) < 2:
        return ()
    longest = max(measured, key=lambda step: job_us[step])
    return (
        Way(f"Longest: {numbers.step_name(job, longest)}, in the timeline", "/timeline", (("steps", str(longest)),)),
        Way("What makes it long", "/ranks"),
    )


def _reading(view: View, job_us: Sequence[float]) -> str:
    """Sentence on the job's own steps, whichever ranks are shown."""
    times_us = [value for i, value in enumerate(job_us) if view.shows_step(i) and math.isfinite(value)]
    if not times_us:
        return "No step of the whole job was measured."
    if len(times_us) == 1:
        return f"Only one step, {format_us(times_us[0])}: its spread is unknown."
    spread = phrases.spread_words(view.opened.report)
    words = f"The median of {len(times_us)} steps is {format_us(statistics.median(times_us))}"
    return words + (f", {spread}." if spread else ".")


def _outliers(values: Array) -> Array:
    """Positions of values far from the median, by the median absolute deviation."""
    distance = np.abs(values - np.median(values))
    least = max(OUTLIER_SPREADS * float(np.median(distance)), LEAST_OUTLIER_SHARE * float(np.median(values)))
    return np.flatnonzero(distance > least)


def _drawn(values: Array) -> Array:
    """Positions of at most MAX_DOTS dots: half of them the outermost, half evenly spaced."""
    if len(values) <= MAX_DOTS:
        return np.arange(len(values))
    half = MAX_DOTS // 2
    far = np.argsort(-np.abs(values - np.median(values)), kind="stable")[:half]
    even = np.linspace(0, len(values) - 1, half).astype(np.int64)
    return np.union1d(far, even)
