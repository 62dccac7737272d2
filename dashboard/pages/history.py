"""History: the served runs over time."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from ddprof.dashboard.exhibits.several.history import exhibits, has_data
from ddprof.dashboard.pages.cards import exhibit_card, notice
from ddprof.dashboard.runs.view import View


def content(view: View) -> list[Component]:
    """The page."""
    if not has_data(view):
        words = "One run is served. Serve a folder of runs to see them over time: ddprof serve FOLDER."
        return [html.H1("History"), notice(words)]
    return [html.H1("History"), *(exhibit_card(exhibit, "/history", view) for exhibit in exhibits(view))]
