"""Sentences on defects of the input and on the alignment of clocks."""

from __future__ import annotations

import os

from ddprof.report.model import Report
from ddprof.units import format_ranks, format_us
from ddprof.untrusted.plain_text import clean


def health_words(report: Report) -> list[tuple[str, str]]:
    """(severity, sentence) of every input defect; one sentence for all ranks that share a defect."""
    return [
        (severity, clean(f"{format_ranks(ranks) + ': ' if ranks else ''}{_file_alone(report, issue)}; {effect}"))
        for (severity, issue, effect), ranks in health_groups(report).items()
    ]


def _file_alone(report: Report, issue: str) -> str:
    """A note on a file without its folders, which all files of the run share."""
    for folder in sorted({os.path.dirname(path) for path in report.run.paths} - {""}, key=len, reverse=True):
        issue = issue.replace(folder + os.sep, "")
    return issue


def health_groups(report: Report) -> dict[tuple[str, str, str], list[int]]:
    """(severity, issue, effect) of every input defect -> its ranks; empty for a defect of the run."""
    ranks: dict[tuple[str, str, str], list[int | None]] = {}
    for h in report.health:
        ranks.setdefault((h.severity, h.issue, h.effect), []).append(h.rank)
    return {defect: [r for r in where if r is not None] if None not in where else [] for defect, where in ranks.items()}


def clock_words(report: Report) -> str:
    """Method and error of the alignment of clocks; "" where there is one clock."""
    hosts = report.clock.hosts
    if len(hosts) < 2:
        return ""
    errors = [h.error_us for h in hosts.values() if h.error_us is not None]
    whose = f"{len(hosts)} {'hosts' if report.run.hosts else 'ranks, whose hosts were not recorded,'}"
    if len(errors) < 2:  # the reference alone
        return f"clocks of {whose} not aligned: no recorded operation connects them"
    rest = ""
    if len(errors) < len(hosts):
        whose, rest = f"{len(errors)} of {whose}", "; nothing connects the others"
    return clean(f"clocks of {whose} aligned by {report.clock.method} to within {format_us(max(errors))}{rest}")
