"""Timeline: what happened here? The frame of the canvas, which assets/timeline/ draws from the data routes."""

from __future__ import annotations

from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from ddprof.dashboard.exhibits.timeline import configuration, reading, side_by_side
from ddprof.dashboard.pages.cards import notice
from ddprof.dashboard.runs.view import View
from ddprof.dashboard.timeline.lane_info import DIFFERENCE_LOOKS
from ddprof.dashboard.timeline.lanes import CATEGORY_WORDS
from ddprof.errors import DdprofError
from ddprof.report.phrases import clean


def content(view: View) -> list[Component]:
    """The page."""
    if not view.opened.has_traces:
        return [html.H1("Timeline"), notice("A saved report holds no events. Serve the traces to see the timeline.")]
    after = view.number(view.query.get("beside", ""))
    if after is not None and after != view.run:
        return _of_two(view, after)
    return [
        html.H1("Timeline", className="small"),
        *_canvas({**configuration(view), "perfetto": view.perfetto_ui}),
        html.P(reading(view), className="reading"),
    ]


def _canvas(config: dict[str, Any]) -> list[Component]:
    return [
        html.Div(id="timeline-root", className="timeline"),
        dcc.Store(id="timeline-config", data=config),
        html.Div(id="timeline-mounted", hidden=True),
    ]


def _of_two(view: View, after: int) -> list[Component]:
    """Two runs one above the other, or the reason why there is nothing to see."""
    head = [html.H1("Timeline of two runs", className="small")]
    back = html.P(dcc.Link("Back to Compare", href=view.link("/compare", against=view.ids[after])))
    if not view.runs[after].has_traces:
        return [*head, notice(f"{view.names[after]} is a saved report, which holds no events: serve its traces."), back]
    try:
        view.opened.beside(view.runs[after])
    except DdprofError as error:
        return [*head, notice(clean(str(error))), back]
    words = (
        f"After: {view.names[after]}. Before: {view.names[view.run]}. Every step of a rank begins at the same place in "
        "both; colours say how much longer all calls of a name in a lane's kind took in that step."
    )
    entries = [
        html.Li([html.Span(className=f"tl-swatch {color}"), f" {letter} {CATEGORY_WORDS[name]}"])
        for name, (color, letter) in DIFFERENCE_LOOKS.items()
    ]
    legend, reading_of_two = html.Ul(entries, className="tl-legend"), html.P(clean(words), className="reading")
    return [*head, legend, *_canvas(side_by_side(view, after)), reading_of_two, back]
