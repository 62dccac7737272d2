"""All pages in the order of the navigation, those of slices last: their subjects and layouts."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from ddprof.dashboard.exhibits.catalogue import SUBJECTS
from ddprof.dashboard.exhibits.compare import against, comparison_of
from ddprof.dashboard.exhibits.compare import exhibits as compare_exhibits
from ddprof.dashboard.exhibits.findings import exhibits as finding_exhibits
from ddprof.dashboard.exhibits.timeline import configuration, reading, side_by_side
from ddprof.dashboard.exhibits.tuning import exhibits as tuning_exhibits
from ddprof.dashboard.exhibits.tuning import shown
from ddprof.dashboard.pages import data, overview, what_if
from ddprof.dashboard.pages.cards import exhibit_card, finding_card, notice, whole_run
from ddprof.dashboard.pages.page import Page
from ddprof.dashboard.runs.view import View
from ddprof.dashboard.timeline.categories import LOOKS
from ddprof.errors import DdprofError, UsageError
from ddprof.report.comparison.text import comparison_headline
from ddprof.report.phrases import clean
from ddprof.slice import all_slices


def _timeline(view: View) -> list[Component]:
    """Timeline: what happened here? The frame of the canvas, which assets/timeline/ draws from the data routes."""
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
    looks = [LOOKS[name] for name in ("grew_much", "grew", "unchanged", "shrank", "shrank_much", "only_here")]
    entries = [
        html.Li(
            [
                html.Span(className="tl-swatch", style={"background": f"var(--{look.color})"}),
                f" {look.letter} {look.words}",
            ]
        )
        for look in looks
    ]
    legend, reading_of_two = html.Ul(entries, className="tl-legend"), html.P(clean(words), className="reading")
    return [*head, legend, *_canvas(side_by_side(view, after)), reading_of_two, back]


def _findings(view: View) -> list[Component]:
    """Findings: what do I fix first? Every finding with its price, evidence and fixes."""
    findings = view.opened.report.ranked_findings()
    charts = [exhibit_card(exhibit, "/findings", view) for exhibit in finding_exhibits(view)]
    cards = [finding_card(view, number, finding, full=True) for number, finding in enumerate(findings)]
    return [html.H1("Findings"), *whole_run(view, "The findings"), *charts, *cards]


def _tuning(view: View) -> list[Component]:
    """Tuning: which settings are worth keeping? One of the tunings of the run's command, with links to the others."""
    cards = [exhibit_card(exhibit, "/tuning", view) for exhibit in tuning_exhibits(view)]
    tunings, chosen = view.opened.tunings, shown(view)
    if len(tunings) < 2 or chosen is None:
        return [html.H1("Tuning"), *whole_run(view, "Tuning"), *cards]
    links = [
        html.Li(
            f"{clean(tuning.name)}: shown"
            if tuning.folder == chosen.folder
            else dcc.Link(clean(tuning.name), href=view.link("/tuning", tuning=tuning.name))
        )
        for tuning in tunings
    ]
    return [html.H1("Tuning"), *whole_run(view, "Tuning"), html.Ul(links, className="choices"), *cards]


def _compare(view: View) -> list[Component]:
    """Compare: better, or noise? Two of the served runs side by side."""
    head = [html.H1("Compare")]
    if len(view.runs) < 2:
        words = "One run is served. Serve two to compare them: ddprof serve BEFORE AFTER."
        return [*head, notice(words)]
    comparison = comparison_of(view)
    choices = html.Ul([html.Li(_choice(view, number)) for number in range(len(view.runs))], className="choices")
    remarks = [notice(f"Not the same kind of run: {d}", "error") for d in comparison.differences]
    remarks += [notice(note) for note in comparison.notes]
    charts = [exhibit_card(exhibit, "/compare", view) for exhibit in compare_exhibits(view)]
    headed = html.H2(clean(comparison_headline(comparison)), className="prediction")
    return [*head, headed, choices, _both(view), *remarks, *charts]


def _both(view: View) -> Component:
    """The link to the timeline of the two runs, or the reason why there is none."""
    after = against(view)
    saved = [view.names[n] for n in (view.run, after) if not view.runs[n].has_traces]
    if saved:
        are = "is a saved report" if len(saved) < 2 else "are saved"
        return html.P(f"No timeline of the two: {' and '.join(saved)} {are}.", className="reading")
    link = view.link("/timeline", beside=view.ids[after])
    return html.P(dcc.Link("Show both in the timeline, aligned by step", href=link))


def _choice(view: View, number: int) -> Component | str:
    name = view.names[number]
    if number == view.run:
        return f"{name}: before (chosen above)"
    if number == against(view):
        return f"{name}: after"
    return dcc.Link(f"{name}: take as after", href=view.link("/compare", against=view.ids[number]))


_LAYOUTS: Mapping[str, Callable[[View], list[Component]]] = {
    "/": overview.content,
    "/findings": _findings,
    "/timeline": _timeline,
    "/what-if": what_if.content,
    "/tuning": _tuning,
    "/compare": _compare,
    "/data": data.content,
}
PAGES: tuple[Page, ...] = (
    *(Page(**vars(subject), layout=_LAYOUTS.get(subject.path)) for subject in SUBJECTS),
    *(importlib.import_module(module).PAGE for part in all_slices() for module in part.pages),
)
_BY_PATH = {page.path: page for page in PAGES}


def page_at(path: str) -> Page:
    """The page of an address. Raises UsageError where there is none."""
    page = _BY_PATH.get(path.rstrip("/") or "/")
    if page is None:
        raise UsageError(f"there is no page {path}")
    return page
