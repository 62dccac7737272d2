"""A history as text and as a JSON document."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from ddprof.causes import CAUSES
from ddprof.report import phrases
from ddprof.slices.comparison.history import PastRun
from ddprof.units import format_share, format_us
from ddprof.untrusted.secrets import masked_data

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
