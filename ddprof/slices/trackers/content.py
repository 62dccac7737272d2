"""Summary of a run for trackers: numbers with equal names in all of them, and a few sentences.

Shares are of the step, 0 to 1; times are milliseconds, as `_ms` says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ddprof.capture.launcher.live import LiveRank, latest_late
from ddprof.causes import CAUSES
from ddprof.report import phrases
from ddprof.report.markdown import render_markdown
from ddprof.report.model import Report
from ddprof.untrusted.secrets import masked

# A tracker draws one chart per number: as many ranks as a node or a pod has. Larger jobs get the extremes.
MOST_RANKS = 64


@dataclass(frozen=True)
class Content:
    """One thing to log. `html` is the report as a file; `markdown` its summary."""

    numbers: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    markdown: str = ""
    html: Path | None = None


def of_report(report: Report, html: Path | None, folder: str = "") -> Content:
    """The verdict of an analyzed run. `folder`: the run's folder, for the way back from the tracker to ddprof."""
    wall_us = report.steps.wall_us
    job = report.ledger.job
    job_wall_us = job.get("wall_us", 0.0)
    numbers = {"ddprof/step_ms": wall_us / 1e3} if report.steps.count else {}
    if job_wall_us > 0:
        numbers |= {f"ddprof/share/{cause}": job.get(cause, 0.0) / job_wall_us for cause in CAUSES}
    mfu = report.efficiency.get("mfu")
    if mfu is not None:
        numbers["ddprof/mfu"] = float(mfu)
    numbers |= rank_steps(
        "ddprof", {rank: row.get("wall_us", 0.0) / 1e3 for rank, row in report.ledger.per_rank.items()}
    )
    for finding in report.ranked_findings():
        numbers[f"ddprof/finding/{finding.id}/recoverable_ms"] = finding.recoverable_us.value / 1e3
    numbers = {key: value for key, value in numbers.items() if math.isfinite(value)}
    return Content(numbers, _words(report, folder), render_markdown(report), html)


def of_running(ranks: Sequence[LiveRank]) -> Content:
    """A running job, by the step timers of its ranks: medians of their recent steps outside trace windows."""
    steps_ms = {rank.rank: rank.median_ns() / 1e6 for rank in ranks if rank.steps}
    if not steps_ms:
        return Content()
    numbers = {"ddprof/live/step_ms": max(steps_ms.values()), **rank_steps("ddprof/live", steps_ms)}
    late = latest_late(ranks)
    numbers["ddprof/live/late_ms"] = 0.0 if late is None else late.late_ns / 1e6
    if late is None:
        return Content(numbers, {"ddprof/live/late": "none"})
    words = f"rank {late.rank} is late by {late.late_ns / 1e6:.1f} ms per step, in {late.phase}"
    return Content({**numbers, "ddprof/live/late_rank": float(late.rank)}, {"ddprof/live/late": words})


def rank_steps(prefix: str, steps_ms: Mapping[int, float]) -> dict[str, float]:
    """Step time per rank; for more than MOST_RANKS ranks only the fastest and the slowest, with their numbers."""
    if not steps_ms:
        return {}
    if len(steps_ms) <= MOST_RANKS:
        return {f"{prefix}/rank/{rank}/step_ms": value for rank, value in sorted(steps_ms.items())}
    fastest, slowest = (pick(steps_ms, key=lambda rank: steps_ms[rank]) for pick in (min, max))
    return {
        f"{prefix}/fastest_rank": float(fastest),
        f"{prefix}/fastest_rank_step_ms": steps_ms[fastest],
        f"{prefix}/slowest_rank": float(slowest),
        f"{prefix}/slowest_rank_step_ms": steps_ms[slowest],
    }


def _words(report: Report, folder: str) -> dict[str, str]:
    words = {"ddprof/verdict": phrases.headline(report), "ddprof/bound": report.verdict.bound}
    findings: Sequence[str] = [finding.id for finding in report.ranked_findings()]
    if findings:
        words["ddprof/findings"] = ", ".join(findings)
    leading = phrases.leading(report)
    if leading is not None and leading.fixes:
        words["ddprof/do_first"] = phrases.fix_words(leading.fixes[0])
    if folder:
        words["ddprof/run"] = folder
    return {name: masked(text) for name, text in words.items()}
