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
from datetime import datetime, timezone
from typing import Any

from ddprof.causes import CAUSES
from ddprof.report import phrases
from ddprof.report.comparison.compare import LEAST_SHARE, Comparison, compare, timed_step_us
from ddprof.report.model import Report
from ddprof.significance import TAIL, is_none_of, trend
from ddprof.units import format_share, format_us
from ddprof.untrusted.secrets import masked_data

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


SCHEMA = "ddprof.history/1"
NOT_RECORDED = "not recorded"
MARKS = {"slower": "▲", "faster": "▼", "other": "◆", "": " "}
_LEAST_SHARE = 0.02  # of the step: what a line names
_MOST_CAUSES = 3
_NO_DATE_S = 253_402_300_800  # the year 10000


def when_words(unix_s: float | None) -> str:
    """A date and time, UTC, to the minute."""
    if unix_s is None or not 0 <= unix_s < _NO_DATE_S:
        return NOT_RECORDED
    return f"{datetime.fromtimestamp(unix_s, timezone.utc):%Y-%m-%d %H:%M}"


def commit_words(entry: PastRun) -> str:
    """The commit's usual short form."""
    return entry.report.run.commit[:10] or NOT_RECORDED


def mfu(entry: PastRun) -> float | None:
    """MFU, where shapes and the device's peak are known."""
    value = entry.report.efficiency.get("mfu")
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def shares(entry: PastRun) -> dict[str, float]:
    """Share of the step by cause."""
    job = entry.report.ledger.job
    wall_us = job.get("wall_us", 0.0)
    return {cause: job.get(cause, 0.0) / wall_us if wall_us > 0 else 0.0 for cause in CAUSES}


def change_words(entry: PastRun) -> str:
    """The change at a change point in words; "" at any other run."""
    if entry.change == "other":
        return entry.why
    if not entry.change or entry.change_us is None:
        return ""
    cause = f", mostly {CAUSES[entry.why].label}" if entry.why in CAUSES else ""
    since = f" little by little since {entry.since}" if entry.since else ""
    where = " over the whole run" if entry.is_timed else ""
    return f"{entry.change} by {format_us(abs(entry.change_us))}{where}{since}{cause}"


def history_headline(entries: Sequence[PastRun]) -> str:
    """The history in one sentence."""
    points = [e for e in entries if e.change in ("slower", "faster")]
    runs = f"{len(entries)} run{'s' if len(entries) != 1 else ''}"
    if not points:
        return f"{runs}, no change of the step beyond the noise"
    last = points[-1]
    count = f"{len(points)} change{'s' if len(points) != 1 else ''}"
    return f"{runs}, {count} of the step; the last at {phrases.clean(last.name)}: {change_words(last)}"


def render_text(entries: Sequence[PastRun]) -> str:
    """A line per run, ending in a newline."""
    width = max((len(phrases.clean(e.name)) for e in entries), default=4)
    lines = [
        history_headline(entries),
        "",
        f"  {'run':<{width}}  {'date (UTC)':<16}  {'step':>9}  {'MFU':>6}  verdict and causes",
    ]
    for entry in entries:
        report, mfu_share = entry.report, mfu(entry)
        largest = sorted(shares(entry).items(), key=lambda item: -item[1])[:_MOST_CAUSES]
        parts = ", ".join(f"{CAUSES[c].label} {format_share(s)}" for c, s in largest if s >= _LEAST_SHARE)
        used = "-" if mfu_share is None else format_share(mfu_share)
        when = when_words(report.run.started_unix_s)
        name, step = phrases.clean(entry.name), format_us(report.steps.wall_us)
        lines.append(
            f"{MARKS[entry.change]} {name:<{width}}  {when:<16}  {step:>9}  {used:>6}  {report.verdict.bound}: {parts}"
        )
        remarks = [change_words(entry)] if entry.change else []
        remarks += [f"commit {phrases.clean(commit_words(entry))}"] if report.run.commit else []
        lines += [f"  {'':<{width}}  {phrases.clean('; '.join(remarks))}"] if remarks else []
    return "\n".join(lines) + "\n"


def to_json(entries: Sequence[PastRun]) -> dict[str, Any]:
    """The JSON-ready document; times in microseconds, shares of the step."""
    document = {
        "schema": SCHEMA,
        "runs": [
            {
                "name": entry.name,
                "started_unix_s": entry.report.run.started_unix_s,
                "commit": entry.report.run.commit or None,
                "steps": entry.report.steps.count,
                "step_us": round(entry.report.steps.wall_us, 3),
                "verdict": {"bound": entry.report.verdict.bound, "headline": entry.report.verdict.headline},
                "findings": [finding.id for finding in entry.report.ranked_findings()],
                "shares": {cause: round(share, 6) for cause, share in shares(entry).items()},
                "mfu": mfu(entry),
                "change": entry.change or None,
                "change_us": None if entry.change_us is None else round(entry.change_us, 3),
                "why": entry.why or None,
                "since": entry.since or None,
            }
            for entry in entries
        ],
    }
    return masked_data(document)
