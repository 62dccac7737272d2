"""Runs in the order of time, and those from which on the step is another one.

A run is a change point where its step differs from that of the run before it by 1 % or more, beyond the 95 % interval
that the steps' own spread allows (as `ddprof compare` has it), and, where three or more runs stand since the last
change point, also lies outside the 95 % prediction interval of one more run like these (Student's t): the steps of one
run share its machine and its moment, so their spread alone says nothing of what varies from run to run. A run of
another size, device or parallelism begins anew: its step cannot be compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddprof.report.comparison.compare import Comparison, compare
from ddprof.report.comparison.student import quantile
from ddprof.report.model import Report

LEAST_RUNS = 3  # since the last change point, before their spread says what varies from run to run
TAIL = 0.025  # of either side of a 95 % interval


@dataclass(frozen=True)
class PastRun:
    """One run. `change`: "slower" or "faster" at a change point, "other" where another kind of job begins, else "".

    `change_us`: of the step against the run before it; None for the first of its kind. `why` in words.
    """

    report: Report
    name: str
    change: str = ""
    change_us: float | None = None
    why: str = ""


def history(named: Sequence[tuple[str, Report]]) -> list[PastRun]:
    """Entries by time, those of unknown time first, in the order given; runs without a measured step are left out."""
    measured = [(name, report) for name, report in named if _step_us(report) > 0]
    ordered = sorted(measured, key=lambda pair: pair[1].run.started_unix_s or 0.0)
    entries: list[PastRun] = []
    since: list[float] = []  # steps of the runs since the last change point
    for name, report in ordered:
        entry = _entry(name, report, entries[-1].report if entries else None, since)
        if entry.change:
            since.clear()
        since.append(_step_us(report))
        entries.append(entry)
    return entries


def _entry(name: str, report: Report, before: Report | None, since: Sequence[float]) -> PastRun:
    if before is None:
        return PastRun(report, name)
    comparison = compare(before, report)
    if comparison.differences:
        return PastRun(report, name, "other", None, f"another job: {comparison.differences[0]}")
    step = comparison.step
    if step.outcome not in ("slower", "faster") or not _is_outside(_step_us(report), since):
        return PastRun(report, name, "", step.change_us)
    return PastRun(report, name, step.outcome, step.change_us, _cause_words(comparison))


def _is_outside(step_us: float, since: Sequence[float]) -> bool:
    """Whether a step is none that one more run like those since the last change point would have."""
    count = len(since)
    if count < LEAST_RUNS:
        return True
    spread_us = float(np.std(since, ddof=1)) * math.sqrt(1 + 1 / count)
    return abs(step_us - float(np.mean(since))) > quantile(TAIL, count - 1) * spread_us


def _cause_words(comparison: Comparison) -> str:
    """The cause that changed most in the direction of the step, with its change."""
    change_us = comparison.step.change_us
    leading = next((d for d in comparison.causes if d.change_us * change_us > 0 and d.outcome != "same"), None)
    return "" if leading is None else leading.name


def _step_us(report: Report) -> float:
    step_us = report.steps.wall_us
    return step_us if math.isfinite(step_us) else 0.0
