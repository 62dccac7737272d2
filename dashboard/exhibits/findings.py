"""Findings: what do I fix first?"""

from __future__ import annotations

from typing import Any

from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, sheet
from ddprof.dashboard.figures.charts import Ranges
from ddprof.dashboard.runs.view import View
from ddprof.report import phrases


def exhibits(view: View) -> list[Exhibit]:
    """The findings by their price."""
    report = view.opened.report
    findings = report.ranked_findings()
    columns = ("finding", "severity", "who", "gain (ms/step)", "low (ms)", "high (ms)", "step after (ms)", "confidence")
    rows: list[tuple[Any, ...]] = []
    for finding in findings:
        gain, step_us = report.shown_gain(finding)
        times = [us / 1e3 for us in (gain.value, gain.low, gain.high, max(0.0, step_us - gain.value))]
        who = (finding.id, report.severity_of(finding), phrases.who_words(finding))
        rows.append((*who, *times, finding.confidence))
    if not rows:
        return [Exhibit("findings", "What do I fix first?", phrases.nothing_found_words(report), sheet(columns, rows))]
    gain_words = phrases.on_page(phrases.gain_words(report, findings[0]))
    reading = f"{rows[0][0]} comes first: {gain_words}. Gains overlap; never add them."
    low, value, high = ([row[i] for row in rows] for i in (4, 3, 5))
    chart = Ranges([f"{i}. {r[0]} · {r[2]}" for i, r in enumerate(rows, 1)], low, value, high, "ms per step")
    return [Exhibit("findings", "What do I fix first?", reading, sheet(columns, rows), chart)]
