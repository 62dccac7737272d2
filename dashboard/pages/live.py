"""Live: a job that still runs, drawn again every two seconds."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from ddprof.dashboard.exhibits.live import exhibits
from ddprof.dashboard.pages.cards import exhibit_card, notice
from ddprof.dashboard.runs.live import running_ranks
from ddprof.dashboard.runs.view import View

REFRESH_MS = 2_000


def content(view: View) -> list[Component]:
    """The page; its inside is drawn again every two seconds, which no screen reader should read out each time."""
    clock = dcc.Interval(id="live-clock", interval=REFRESH_MS)
    return [html.H1("Live"), clock, html.Div(inside(view), id="live")]


def inside(view: View) -> list[Component]:
    """What changes while the job runs."""
    if not running_ranks(view.opened.folder):
        words = (
            "No rank of this run runs now. While a job started by ddprof run is training, serve its run folder: "
            "ddprof serve ddprof-runs/latest."
        )
        return [notice(words)]
    return [exhibit_card(e, "/live", view) for e in exhibits(view)]
