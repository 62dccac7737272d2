"""Runs in order of time, with the change points of their step.

A run is a change point where its step differs from that of the run before it by 1 % or more, beyond the 95 % interval
that the steps' own spread allows (as `ddprof compare` has it), and, where three or more runs stand since the last
change point, also lies outside the 95 % prediction interval of one more run like these (Student's t): the steps of one
run share machine and moment, so their spread does not include variation between runs. A run of another size, device or
parallelism starts a new series.

Steps that creep, each run by less than that, are a change too: at the run where the straight line of least squares
through the runs since the last change point has risen or fallen by 1 % or more, and its slope is other than zero by a
t test. That test is made again at each run, so its level is divided by the number of runs (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ddprof.report.comparison.compare import LEAST_SHARE, Comparison, compare, timed_step_us
from ddprof.report.model import Report
from ddprof.significance import TAIL, is_none_of, trend

LEAST_RUNS = 3  # since the last change point, before their spread says what varies from run to run
LEAST_TREND = 5  # runs that a line is drawn through: two give it, the others test it
StepOf = Callable[[Report], float | None]  # by the timers of the whole run where all runs have them, else traced


@dataclass(frozen=True)
class PastRun:
    """One run. `change`: "slower" or "faster" at a change point, "other" at the first of another kind of job, else "".

    `change_us`: of the step against the run before it, or against the run named `since`, from which on it crept; None
    for the first of its kind. `why`: the cause that changed most, or what differs, in words. `is_timed`: the change is
    of the whole run's mean step, by its timers, not of the traced steps.
    """

    report: Report
    name: str
    change: str = ""
    change_us: float | None = None
    why: str = ""
    since: str = ""
    is_timed: bool = False


def history(named: Sequence[tuple[str, Report]]) -> list[PastRun]:
    """Entries by time (unknown times first), then in the given order, without runs whose step was not measured."""
    measured = [(name, report) for name, report in named if _traced_us(report) > 0]
    by_timers = all(timed_step_us(report) for _, report in measured)
    ordered = sorted(measured, key=lambda pair: pair[1].run.started_unix_s or 0.0)
    entries: list[PastRun] = []
    first = 0  # the last change point
    for name, report in ordered:
        entry = _entry(name, report, entries[first:], len(ordered), timed_step_us if by_timers else _traced_us)
        if entry.change:
            first = len(entries)
        entries.append(replace(entry, is_timed=by_timers))
    return entries


def _entry(name: str, report: Report, since: Sequence[PastRun], runs: int, step_of: StepOf) -> PastRun:
    """The run that follows those `since` the last change point, of `runs` in all; `step_of`: us of a run."""
    if not since:
        return PastRun(report, name)
    comparison = compare(since[-1].report, report)
    if comparison.differences:
        return PastRun(report, name, "other", None, f"another job: {comparison.differences[0]}")
    step, steps_us = comparison.step, [step_of(entry.report) or 0.0 for entry in since]
    step_us = step_of(report) or 0.0
    is_another = len(steps_us) < LEAST_RUNS or is_none_of(step_us, steps_us)
    if step.outcome in ("slower", "faster") and is_another:
        return PastRun(report, name, step.outcome, step.change_us, _cause_words(comparison))
    crept_us = _crept_us([*steps_us, step_us], TAIL / runs)
    if crept_us:
        words = _cause_words(compare(since[0].report, report))
        return PastRun(report, name, "slower" if crept_us > 0 else "faster", crept_us, words, since[0].name)
    return PastRun(report, name, "", step.change_us)


def _crept_us(steps_us: Sequence[float], tail: float) -> float:
    """Rise (fall: negative) of the line through these steps, first to last; 0.0 if below 1 % or perhaps chance."""
    line = trend(steps_us, tail) if len(steps_us) >= LEAST_TREND else None
    rise_us = 0.0 if line is None else line[1] - line[0]
    return rise_us if abs(rise_us) >= LEAST_SHARE * steps_us[0] else 0.0


def _cause_words(comparison: Comparison) -> str:
    """The cause with the largest change in the direction of the step, and its change."""
    change_us = comparison.step.change_us
    leading = next((d for d in comparison.causes if d.change_us * change_us > 0 and d.outcome != "same"), None)
    return "" if leading is None else leading.name


def _traced_us(report: Report) -> float:
    step_us = report.steps.wall_us
    return step_us if math.isfinite(step_us) else 0.0
