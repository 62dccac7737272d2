"""The reading of span logs: its sentence, as text, and as a JSON document (schema "ddprof.span_log/1")."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ddprof.report.log_reading import (
    NOTHING,
    WIDTH,
    LogFinding,
    finding_lines,
    finding_row,
    in_blocks,
    next_commands,
    number_table,
)
from ddprof.slices.span_logs.judge import MEETS, findings_of
from ddprof.slices.span_logs.read import UNNAMED, Run, SpanLog, SpanReport, run_of
from ddprof.units import format_count, format_share, format_us
from ddprof.untrusted.secrets import masked_data

SCHEMA = "ddprof.span_log/1"
_MOST_PHASES = 12


def explained(log: SpanLog) -> SpanReport:
    """The report of one run's logs. Raises NoUsableInput where they hold too few steps."""
    run = run_of(log)
    findings = tuple(findings_of(run))
    return SpanReport(log, run, _sentence(run, findings), findings, tuple(_abstained(log, run)))


def _sentence(run: Run, findings: tuple[LogFinding, ...]) -> str:
    period = np.median(run.period_s, axis=0) * 1e6
    low, middle, high = (float(np.quantile(period, at)) for at in (0.1, 0.5, 0.9))
    leading = next((finding.summary for finding in findings if finding.severity != "info"), None)
    step = f"A step takes {format_us(middle)} ({format_us(low)} to {format_us(high)} in eight of ten)"
    verdict = "No span shows what could be faster" if leading is None else leading[0].upper() + leading[1:]
    return f"{step}. {verdict}."


def _abstained(log: SpanLog, run: Run) -> Iterator[str]:
    if len(run.ranks) < 2:
        yield "Late ranks: the logs are of one rank."
    meeting = [name for name in run.phases if MEETS.search(name)]
    if meeting:
        yield f"Slow devices: ranks wait for one another in {', '.join(meeting)}, so that all take equally long there."
    if log.torn:
        yield f"{format_count(log.torn, 'line')} that are no whole record."
    if log.damaged:
        yield f"What {format_count(log.damaged, 'damaged file')} held after the damage."


def render(report: SpanReport) -> str:
    """The reading as plain characters, ending in a newline."""
    run, log = report.run, report.log
    ranks, steps = format_count(len(run.ranks), "rank"), format_count(len(run.numbers), "step")
    blocks: list[Iterable[str]] = [
        [*textwrap.wrap(report.sentence, WIDTH), f"Log: {log.label} ({log.writer}): {ranks}, {steps}"],
        finding_lines(report.findings),
        _table(run),
        [line for said in report.abstained for line in textwrap.wrap(f"Not judged. {said}", WIDTH)],
        next_commands(report.findings),
    ]
    return in_blocks(blocks)


def _rows(run: Run) -> list[tuple[str, float, float, int, float]]:
    """(phase, mean of the typical rank in s, of the longest, which one, share), the longest first."""
    rows = []
    for name, times in run.phases.items():
        mean = times.mean(axis=1)
        worst, share = int(np.argmax(mean)), float(times.sum() / run.period_s.sum())
        rows.append((name, float(np.median(mean)), float(mean[worst]), run.ranks[worst], share))
    return sorted(rows, key=lambda row: -row[4])


def _table(run: Run) -> Iterator[str]:
    rows = [row for row in _rows(run) if row[4] > NOTHING]
    yield "Phases of a step (without the spans inside them)"
    cells = [("phase", "mean", "longest rank", "", "share")]
    for name, mean, longest, rank, share in rows[:_MOST_PHASES]:
        cells.append((name, format_us(mean * 1e6), format_us(longest * 1e6), f"({rank})", format_share(share)))
    yield from number_table(cells)
    if len(rows) > _MOST_PHASES:
        yield f"  ... and {len(rows) - _MOST_PHASES} more (--format json)"


def document(report: SpanReport) -> dict[str, Any]:
    """Plain dicts, lists, strings, numbers and None. Times are microseconds."""
    run = report.run
    names = ("phase", "mean_us", "longest_us", "longest_rank", "share")
    phases = [
        dict(zip(names, (n, m * 1e6, w * 1e6, r, s), strict=True)) for n, m, w, r, s in _rows(run) if n != UNNAMED
    ]
    return masked_data(
        {
            "schema": SCHEMA,
            "name": report.log.label,
            "writer": report.log.writer,
            "sentence": report.sentence,
            "ranks": list(run.ranks),
            "steps": {"first": run.numbers[0], "count": len(run.numbers)},
            "step_us": float(np.median(run.period_s) * 1e6),
            "findings": [finding_row(finding) for finding in report.findings],
            "phases": phases,
            "not_judged": list(report.abstained),
        }
    )
