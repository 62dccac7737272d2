"""Sentences on defects of the input and on the alignment of clocks."""

from __future__ import annotations

import os

from ddprof.report.model import Report
from ddprof.units import format_ranks, format_us
from ddprof.untrusted.plain_text import clean


def health_words(report: Report) -> list[tuple[str, str]]:
    """(severity, sentence) of every input defect; one sentence for all ranks that share a defect, whatever their files
    are called.
    """
    folders = sorted({os.path.dirname(path) for path in report.run.paths} - {""}, key=len, reverse=True)
    names = {os.path.basename(path) for path in report.run.paths}
    alike: dict[tuple[str, str, str], list[tuple[str, list[int]]]] = {}
    for (severity, issue, effect), ranks in health_groups(report).items():
        for folder in folders:  # all files of the run share them
            issue = issue.replace(folder + os.sep, "")
        file, _, said = issue.partition(": ")
        if not ranks or file not in names:
            file, said = "", issue
        alike.setdefault((severity, said, effect), []).append((file, ranks))
    sentences = []
    for (severity, issue, effect), places in alike.items():  # behind the ranks and files that have it
        ranks, files = sorted(rank for _, which in places for rank in which), [file for file, _ in places if file]
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        where = (f"{format_ranks(ranks)}: " if ranks else "") + (f"{files[0]}{more}: " if files else "")
        sentences.append((severity, clean(f"{where}{issue}; {effect}")))
    return sentences


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
    return clean(f"clocks of {whose} aligned to within {format_us(max(errors))} by {report.clock.method}{rest}")
