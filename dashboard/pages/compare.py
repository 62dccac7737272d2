"""Compare: better, or noise? Two of the served runs side by side, each cause with its interval."""

from __future__ import annotations

from collections.abc import Iterator

import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component
from ddprof.dashboard.cards import exhibit_card, notice
from ddprof.dashboard.exhibit import Exhibit, sheet
from ddprof.dashboard.figures.base import palette
from ddprof.dashboard.figures.points import dumbbells
from ddprof.dashboard.view import View

from ddprof.report import phrases
from ddprof.report.compare import Comparison, Delta, compare
from ddprof.report.compare_text import headline
from ddprof.report.phrases import CAUSE_WORDS


def content(view: View) -> list[Component]:
    """The page."""
    head = [html.H1("Compare")]
    if len(view.runs) < 2:
        words = "One run is served. Serve two to compare them: ddprof serve BEFORE AFTER."
        return [*head, notice(words)]
    comparison = _comparison(view)
    choices = html.Ul([html.Li(_choice(view, number)) for number in range(len(view.runs))], className="choices")
    remarks = [notice(f"Not the same kind of run: {d}", "error") for d in comparison.differences]
    remarks += [notice(note) for note in comparison.notes]
    charts = [exhibit_card(exhibit, "/compare", view) for exhibit in exhibits(view)]
    return [*head, html.H2(phrases.clean(headline(comparison)), className="prediction"), choices, *remarks, *charts]


def exhibits(view: View) -> Iterator[Exhibit]:
    """The causes before and after, and the findings that went or came."""
    if len(view.runs) < 2:
        return
    comparison = _comparison(view)
    yield _causes(view, comparison)
    rows = [("gone", f.id, phrases.who_words(f), phrases.clean(f.summary)) for f in comparison.gone]
    rows += [("new", f.id, phrases.who_words(f), phrases.clean(f.summary)) for f in comparison.new]
    reading = (
        f"{len(comparison.gone)} findings are gone, {len(comparison.new)} are new." if rows else "The same findings."
    )
    yield Exhibit(
        "found", "Which findings went, which came?", reading, sheet(("change", "finding", "who", "what"), rows)
    )


def _comparison(view: View) -> Comparison:
    """From the run of the address to the one it is compared against (the next, where the address does not say)."""
    return compare(view.session.report, view.runs[_against(view)].report)


def _against(view: View) -> int:
    text = view.query.get("against", "")
    other = int(text) if text.isdecimal() and int(text) < len(view.runs) else -1
    return other if other >= 0 and other != view.run else (view.run + 1) % len(view.runs)


def _choice(view: View, number: int) -> Component | str:
    name = phrases.clean(view.runs[number].report.run.name) or f"run {number}"
    if number == view.run:
        return f"{name}: before (chosen above)"
    if number == _against(view):
        return f"{name}: after"
    return dcc.Link(f"{name}: take as after", href=view.link("/compare", against=str(number)))


def _causes(view: View, comparison: Comparison) -> Exhibit:
    deltas = [comparison.step, *comparison.causes]
    columns = ("cause", "before (ms)", "after (ms)", "change (ms)", "low (ms)", "high (ms)", "outcome")
    rows = [_row(d) for d in deltas]
    sure = [d for d in comparison.causes if d.outcome in ("slower", "faster")]
    reading = "No cause changed beyond the noise of the steps."
    if sure:
        change = f"{sure[0].change_us / 1e3:+.3g} ms per step"
        reading = f"{_words(sure[0])} changed most: {change}, beyond the noise of the steps."
    return Exhibit(
        "compare-causes",
        "Which cause changed, and is it more than noise?",
        reading,
        sheet(columns, rows),
        _figure(view, deltas),
    )


def _row(delta: Delta) -> tuple[object, ...]:
    low, high = (None if v is None else v / 1e3 for v in (delta.low_us, delta.high_us))
    return (_words(delta), delta.before_us / 1e3, delta.after_us / 1e3, delta.change_us / 1e3, low, high, delta.outcome)


def _words(delta: Delta) -> str:
    return CAUSE_WORDS.get(delta.name, delta.name)


def _figure(view: View, deltas: list[Delta]) -> go.Figure:
    before, after = [d.before_us / 1e3 for d in deltas], [d.after_us / 1e3 for d in deltas]
    return dumbbells([f"{_words(d)} ({d.outcome})" for d in deltas], before, after, palette(view.dark), "ms per step")
