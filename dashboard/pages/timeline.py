"""Timeline: what happened here? The canvas is drawn by assets/timeline/ from the data routes; this is its frame."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from ddprof.dashboard.exhibits.timeline import configuration, reading
from ddprof.dashboard.pages.cards import notice
from ddprof.dashboard.runs.view import View


def content(view: View) -> list[Component]:
    """The page."""
    if not view.opened.has_traces:
        return [html.H1("Timeline"), notice("A saved report holds no events. Serve the traces to see the timeline.")]
    return [
        html.H1("Timeline", className="small"),
        html.P(reading(view), className="reading"),
        html.Div(id="timeline-root", className="timeline"),
        dcc.Store(id="timeline-config", data={**configuration(view), "perfetto": view.perfetto_ui}),
        html.Div(id="timeline-mounted", hidden=True),
    ]
