"""Data: can I trust this? Coverage, clocks, the replay's own error, settings, and defects of the input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from ddprof.analyzers.catalogue import catalogue
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, sheet
from ddprof.dashboard.exhibits.parts.numbers import MAX_LINES
from ddprof.dashboard.figures.charts import Ranges
from ddprof.dashboard.runs.view import View
from ddprof.report import data_notes
from ddprof.report.phrases import clean
from ddprof.units import format_ranks, format_share, format_us


def check_words(rule_id: str) -> str:
    """The title of a rule, or its identifier where the rule is not installed here."""
    rule = catalogue().get(rule_id)
    return rule.title if rule else rule_id


def exhibits(view: View) -> Iterator[Exhibit]:
    """The charts of the page."""
    yield from (_health(view), _coverage(view), _clocks(view), _efficiency(view), _abstentions(view))


def _health(view: View) -> Exhibit:
    rows = [
        (severity, format_ranks(ranks) if ranks else "the run", clean(issue), clean(effect))
        for (severity, issue, effect), ranks in data_notes.health_groups(view.opened.report).items()
    ]
    worst = sum(1 for row in rows if row[0] != "info")
    reading = f"Defects that limit conclusions: {worst}; remarks: {len(rows) - worst}."
    table = sheet(("severity", "where", "defect", "effect"), rows)
    return Exhibit("health", "What is wrong with the input?", reading if rows else "No defect was found.", table)


def _coverage(view: View) -> Exhibit:
    report = view.opened.report
    facts = dict(zip(view.opened.job.rank_ids, view.opened.job.ranks, strict=True)) if view.opened.has_traces else {}
    missing = report.run.missing_ranks
    absent: list[tuple[object, str]] = [(rank, report.run.hosts.get(rank, "")) for rank in missing]
    if len(absent) > MAX_LINES:
        absent = [(format_ranks(missing), "")]
    rows: list[tuple[object, ...]] = []
    for rank in report.run.ranks:
        f = facts.get(rank)
        if f is None:
            rows.append((rank, report.run.hosts.get(rank, ""), "read", None, None, None, ""))
            continue
        counts = (len(f.steps), f.counts.get("events"), f.counts.get("device_ops"))
        rows.append((rank, clean(f.identity.host or ""), f"read ({f.format})", *counts, clean(PurePath(f.path).name)))
    rows += [(shown, host, "missing", None, None, None, "") for shown, host in absent]
    rows.sort(key=lambda row: (isinstance(row[0], str), row[0]))
    reading = f"All {len(report.run.ranks)} ranks left a usable trace."
    reading = f"{format_ranks(missing)} left no usable trace." if missing else reading
    columns = ("rank", "host", "state", "steps", "events", "device operations", "file")
    return Exhibit("coverage", "Which ranks and steps were seen?", reading, sheet(columns, rows))


def _clocks(view: View) -> Exhibit:
    clock = view.opened.report.clock
    rows = [(clean(h), c.offset_us, c.drift_ppm, c.error_us) for h, c in clock.hosts.items()]
    table = sheet(("clock", "offset (µs)", "drift (ppm)", "error (µs)"), rows)
    question = "How well are the clocks aligned?"
    if len(rows) < 2:
        return Exhibit("clocks", question, clean(f"{clock.method.capitalize()}."), table)
    errors = [r[3] for r in rows if r[3] is not None]
    within = f", to within ±{format_us(max(errors))}" if errors else "; the error is not known"
    reading = f"By {clock.method}{within}."
    worst = sorted(range(len(rows)), key=lambda i: -(rows[i][3] or 0.0))[:MAX_LINES]
    drawn = [rows[i] for i in sorted(worst)]
    if len(drawn) < len(rows):
        reading += f" Drawn: the {len(drawn)} of {len(rows)} least certain clocks."
    low, high = ([r[1] + sign * (r[3] or 0.0) for r in drawn] for sign in (-1, 1))
    chart = Ranges([r[0] for r in drawn], low, [r[1] for r in drawn], high, "µs against the reference clock")
    return Exhibit("clocks", question, clean(reading), table, chart)


def _efficiency(view: View) -> Exhibit:
    report = view.opened.report
    rows: list[tuple[str, object]] = []
    for name, value in report.efficiency.items():
        rows += _metric(name, value)
    reading, error = "The replay could not run.", report.replay.error
    if error is not None:
        misses = f"Replaying the unmodified run misses the measured step by {format_share(error)}"
        reading = f"{misses}; predictions are marked above 5 %."
    return Exhibit("efficiency", "How good are the run and the prediction?", reading, sheet(("metric", "value"), rows))


def _metric(name: str, value: object) -> list[tuple[str, object]]:
    """A figure as lines with its unit, one line for each nested one."""
    if name == "bus_bandwidth_gbps" and isinstance(value, dict):
        return [(f"median bus bandwidth of {key} (GB/s)", item) for key, item in value.items()]
    if name == "last_arrivals" and isinstance(value, dict):
        by_rank = value.get("by_rank") or {}
        return [(f"times rank {r} came last, of {value.get('of')}", n) for r, n in by_rank.items()]
    if isinstance(value, dict):
        return [(f"{name} {key}".replace("_", " "), item) for key, item in value.items()]
    words = {"mfu": "MFU", "comm_efficiency": "communication efficiency"}.get(name, name.replace("_", " "))
    return [(f"{words} (%)", 100 * value if isinstance(value, float) else value)]


def _abstentions(view: View) -> Exhibit:
    report = view.opened.report
    rows = [(f.id, check_words(f.id), "found", "") for f in report.ranked_findings()]
    rows += [(a.id, check_words(a.id), "not judged", clean(a.reason)) for a in report.abstentions]
    rows += [(c, check_words(c), "checked, not found", "") for c in report.checked]
    counts = f"{len(report.findings)} found, {len(report.checked)} checked and not found"
    reading = f"{counts}, {len(report.abstentions)} not judged."
    return Exhibit("checks", "What was checked?", reading, sheet(("check", "what it is", "outcome", "why"), rows))
