"""Compare: better, or noise? Two of the served runs side by side."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from ddprof.dashboard.exhibits.compare import against, comparison_of, exhibits
from ddprof.dashboard.pages.cards import exhibit_card, notice
from ddprof.dashboard.runs.view import View
from ddprof.report import phrases
from ddprof.report.comparison.text import headline


def content(view: View) -> list[Component]:
    """The page."""
    head = [html.H1("Compare")]
    if len(view.runs) < 2:
        words = "One run is served. Serve two to compare them: ddprof serve BEFORE AFTER."
        return [*head, notice(words)]
    comparison = comparison_of(view)
    choices = html.Ul([html.Li(_choice(view, number)) for number in range(len(view.runs))], className="choices")
    remarks = [notice(f"Not the same kind of run: {d}", "error") for d in comparison.differences]
    remarks += [notice(note) for note in comparison.notes]
    charts = [exhibit_card(exhibit, "/compare", view) for exhibit in exhibits(view)]
    headed = html.H2(phrases.clean(headline(comparison)), className="prediction")
    return [*head, headed, choices, _both(view), *remarks, *charts]


def _both(view: View) -> Component:
    """The way to the timeline of the two, or why there is none."""
    after = against(view)
    saved = [view.names[n] for n in (view.run, after) if not view.runs[n].has_traces]
    if saved:
        words = (
            f"No timeline of the two: {' and '.join(saved)} {'is a saved report' if len(saved) < 2 else 'are saved'}."
        )
        return html.P(words, className="reading")
    link = view.link("/timeline", beside=view.ids[after])
    return html.P(dcc.Link("Show both in the timeline, aligned by step", href=link))


def _choice(view: View, number: int) -> Component | str:
    name = view.names[number]
    if number == view.run:
        return f"{name}: before (chosen above)"
    if number == against(view):
        return f"{name}: after"
    return dcc.Link(f"{name}: take as after", href=view.link("/compare", against=view.ids[number]))
