"""Timeline: what happened here? Its configuration: spans of the findings' evidence, culprits, the window to show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddprof.causes import CAUSES
from ddprof.dashboard.numbers import parse_numbers, place
from ddprof.dashboard.runs.view import View
from ddprof.dashboard.timeline.index import one_step, step_count
from ddprof.report import phrases
from ddprof.report.bar import shares
from ddprof.units import format_us

FEW_RANKS = 4  # up to here all lanes of all ranks are shown; above it a rank is one line until it is opened
GROUPINGS = ("none", "host", "tp", "pp", "dp", "block")  # as in assets/timeline/order.js
ORDERS = ("rank", "late")
MAX_TIME_US = 1e15  # 30 years; also keeps infinity and NaN out of the page's JSON


PATH_RANKS = 16  # above, the path's line hides more than it shows: it is off until asked for


def configuration(view: View) -> dict[str, Any]:
    """Configuration for assets/timeline/: run, filters, the evidence's spans and the one to jump to."""
    spans: list[dict[str, Any]] = []
    focus = None
    wanted = view.query.get("finding", "")
    for number, finding in enumerate(view.opened.report.ranked_findings()):
        for evidence in finding.evidence:
            if evidence.start_us is None or (evidence.rank is not None and not view.shows(evidence.rank)):
                continue
            if focus is None and wanted == str(number):
                focus = len(spans)
            end = evidence.end_us if evidence.end_us is not None else evidence.start_us
            text = phrases.clean(f"{number + 1}. {finding.summary}: {evidence.text}")
            named = {"rank": evidence.rank, "culprits": list(finding.ranks[:FEW_RANKS])}
            spans.append({**named, "lo_us": evidence.start_us, "hi_us": end, "text": text})
    report = view.opened.report
    shown = [r for r in report.run.ranks if view.shows(r)]
    causes = [CAUSES[cause] for cause, share in shares(report.ledger.job).items() if share > phrases.LEAST_SHARE]
    return {
        "run": view.ids[view.run] if view.runs else "",
        "ranks": view.query.get("ranks", ""),
        "kinds": ["causes", "steps", "phases", "host", "stream", "comm"],
        "open": _opened(view, shown),
        "culprits": sorted({r for f in report.findings for r in f.ranks}),
        "spans": spans,
        "legend": [(cause.color_name, cause.label) for cause in causes],
        "shows_path": len(shown) <= PATH_RANKS,
        "focus": focus,
        "by": _one_of(view.query.get("by", ""), GROUPINGS),
        "order": _one_of(view.query.get("order", ""), ORDERS),
        "step": _step(view),
        "fold": view.query.get("fold", "") == "1",
        **_range(view),
    }


def _opened(view: View, shown: Sequence[int]) -> list[int]:
    """The ranks whose lanes are open: those that the address names, or all where there are few."""
    wanted = parse_numbers(view.query.get("open", ""))
    named = [rank for rank in shown if wanted is not None and rank in wanted][:FEW_RANKS]
    return named or (list(shown) if len(shown) <= FEW_RANKS else [])


def side_by_side(view: View, after: int) -> dict[str, Any]:
    """The configuration for this run and another one, laid side by side."""
    shown = [rank for rank in view.opened.report.run.ranks if view.shows(rank)]
    nothing: dict[str, Any] = {"spans": [], "focus": None, "culprits": []}
    if "from" not in view.query:  # the filter of steps has times of one run
        nothing |= {"from_us": None, "to_us": None}
    opened = shown if len(shown) <= FEW_RANKS else []
    return {**configuration(view), **nothing, "open": opened, "legend": [], "beside": view.ids[after]}


def _one_of(text: str, choices: Sequence[str]) -> str | None:
    return text if text in choices else None


def _range(view: View) -> dict[str, float | None]:
    """The window of the address: from/to in us, or the steps of the filter."""
    stated = _time_us(view.query.get("from", "")), _time_us(view.query.get("to", ""))
    if None not in stated:
        return {"from_us": stated[0], "to_us": stated[1]}
    chosen, steps = view.steps, [of for of in view.opened.timeline.steps if view.shows(of.rank)]
    inside = [
        (lo, hi)
        for number in range(step_count(steps))
        if chosen and number in chosen
        for _, lo, hi in one_step(steps, number)["ranks"]
    ]
    if not inside:
        return {"from_us": None, "to_us": None}
    return {"from_us": min(lo for lo, _ in inside), "to_us": max(hi for _, hi in inside)}


def _step(view: View) -> int | None:
    """The step of the address that the timeline shows or folds."""
    return place(view.query.get("step", ""), step_count(view.opened.timeline.steps))


def _time_us(text: str) -> float | None:
    """A time in the address; None for one that no run can have."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= MAX_TIME_US else None


def reading(view: View) -> str:
    """Number of drawn events, and clock alignment, in words."""
    timeline, clock = view.opened.timeline, view.opened.report.clock
    errors = [h.error_us for h in clock.hosts.values() if h.error_us is not None]
    aligned = f"clocks aligned to ±{format_us(max(errors))}" if errors and max(errors) > 0 else clock.method
    count = f"{len(timeline.index):,} slices in {len(timeline.lanes)} lanes"
    words = f"{count}; {aligned}. Zero is the first step mark."
    named = any(f.ranks for f in view.opened.report.findings)
    return phrases.clean(words + (" ◀ marks ranks that a finding names." if named else ""))
