"""Findings: what do I fix first? Every finding with its price, evidence and fixes."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from ddprof.dashboard.exhibits.findings import exhibits
from ddprof.dashboard.pages.cards import exhibit_card, finding_card, whole_run
from ddprof.dashboard.runs.view import View


def content(view: View) -> list[Component]:
    """The page."""
    found = view.opened.report.ranked_findings()
    charts = [exhibit_card(exhibit, "/findings", view) for exhibit in exhibits(view)]
    cards = [finding_card(view, number, finding, full=True) for number, finding in enumerate(found)]
    return [html.H1("Findings"), *whole_run(view, "The findings"), *charts, *cards]
