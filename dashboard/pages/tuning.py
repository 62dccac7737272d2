"""Tuning: which settings are worth keeping? One of the tunings of the run's command."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from ddprof.dashboard.exhibits.tuning import exhibits, shown
from ddprof.dashboard.pages.cards import exhibit_card, whole_run
from ddprof.dashboard.runs.view import View
from ddprof.report.phrases import clean


def content(view: View) -> list[Component]:
    """The page."""
    cards = [exhibit_card(exhibit, "/tuning", view) for exhibit in exhibits(view)]
    return [html.H1("Tuning"), *whole_run(view, "Tuning"), *_choice(view), *cards]


def _choice(view: View) -> list[Component]:
    """The tunings of this command, where there are several."""
    found, chosen = view.opened.tunings, shown(view)
    if len(found) < 2 or chosen is None:
        return []
    items = [
        html.Li(
            f"{clean(tuning.name)}: shown"
            if tuning.folder == chosen.folder
            else dcc.Link(clean(tuning.name), href=view.link("/tuning", tuning=tuning.name))
        )
        for tuning in found
    ]
    return [html.Ul(items, className="choices")]
