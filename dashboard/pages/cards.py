"""Exhibits, findings and notes as Dash components.

Text is always children of a component: the browser never parses it as HTML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from dash import dcc, html
from dash.development.base_component import Component

from ddprof.analyzers.settings.predict import text_of
from ddprof.causes import CAUSES
from ddprof.dashboard.exhibits.parts import try_it
from ddprof.dashboard.exhibits.parts.exhibit import NAME, Exhibit, Listing, Sheet, cell, headings, unfiltered_words
from ddprof.dashboard.figures.charts import Chart
from ddprof.dashboard.figures.plotly.base import Key, themed
from ddprof.dashboard.figures.plotly.draw import draw
from ddprof.dashboard.runs.view import View
from ddprof.findings import Finding, Fix
from ddprof.report import phrases
from ddprof.report.bar import legend_words, shares, title_words
from ddprof.report.html.parts import Rows, finding_rows, remark_rows
from ddprof.report.html.style import DARK, LIGHT, colour
from ddprof.report.model import Report

MAX_TABLE_ROWS = 500
MAX_CELL_COMPONENTS = 120  # each costs Dash milliseconds in the browser; larger tables are built there
_ICONS = {"critical": "●", "warning": "▲", "info": "ℹ"}
# By the first part of a finding's identifier: title and address.
_OF_FINDING: Mapping[str, tuple[str, str]] = {
    "comm": ("communication", "/communication"),
    "compute": ("kernels", "/kernels"),
    "host": ("input and host", "/host"),
    "input": ("input and host", "/host"),
    "memory": ("memory", "/memory"),
    "pipeline": ("the pipeline", "/pipeline"),
    "straggler": ("ranks and steps", "/ranks"),
}
# By what a step that is mostly of a cause is bound by. What no cause explains is on the page of what the host did.
_OF_BOUND: Mapping[str, str] = {
    "communication": "/communication",
    "compute": "/kernels",
    "host": "/host",
    "input": "/host",
    "none": "/host",
    "pipeline": "/pipeline",
    "straggler": "/ranks",
}


def aria(**values: str) -> dict[str, Any]:
    """ARIA attributes for a component: aria(label="...") is aria-label."""
    return {f"aria-{name}": value for name, value in values.items()}


def exhibit_card(exhibit: Exhibit, page: str, view: View) -> Component:
    """One exhibit: question, sentence, picture, and the numbers behind a fold with a CSV link."""
    caption = f"{exhibit.question} {exhibit.reading}"
    shown = None if exhibit.chart is None else picture(exhibit.chart, f"figure-{exhibit.id}", view, caption)
    scope = unfiltered_words([name for name in view.filtered if name not in exhibit.follows])
    label = [html.Span(scope, className="scope")] if scope else []
    reading = html.P([exhibit.reading, *([" "] if label else []), *label], className="reading")
    elsewhere = [way for way in exhibit.ways if way.path != page]
    links = [dcc.Link(way.words, href=view.link(way.path, **dict(way.query))) for way in elsewhere]
    ways = [html.Div(links, className="links")] if links else []
    numbers = (fold(exhibit, page, view), *map(listing, exhibit.listings))
    content = [html.H2(exhibit.question), reading, shown, *ways, *numbers]
    return html.Section(content, className="exhibit", id=f"exhibit-{exhibit.id}")


def picture(chart: Chart, name: str, view: View, words: str) -> Component:
    """A chart and its legend in the view's colours; `words` are for screen readers."""
    drawn = draw(chart)
    width = {"maxWidth": drawn.most_width_px, "minWidth": drawn.least_width_px}
    place = {"minHeight": drawn.height_px, **{key: px for key, px in width.items() if px is not None}}
    figure = themed(drawn.figure, DARK if view.dark else LIGHT)
    config: Any = {"displayModeBar": False, "responsive": True}
    graph = dcc.Graph(figure=figure, config=config, style={"height": drawn.height_px}, id=name)
    # The place is kept while plotly.js is on its way, so that nothing jumps.
    plot = html.Div(graph, style=place, className="plot", role="img", **aria(label=words))
    # A wide one is scrolled, which the keyboard must reach.
    scrolled: dict[str, Any] = {} if drawn.least_width_px is None else {"tabIndex": "0"}
    return html.Div([html.Div(plot, className="plot-frame", **scrolled), _legend(drawn.legend)], className="chart")


def _legend(keys: Sequence[Key]) -> Component | None:
    if not keys:
        return None
    items = [
        html.Li([html.Span(k.mark, className=f"swatch {k.color}", style={"background": k.background}), k.words])
        for k in keys
    ]
    return html.Ul(items, className="legend")


def listing(shown: Listing) -> Component:
    """Text to copy; assets/shared/copy.js copies it."""
    button = html.Button("Copy", type="button", className="copy no-print", **aria(label=f"Copy: {shown.words}"))
    head = html.Div([html.Span(shown.words), button], className="listing-head")
    return html.Div([head, html.Pre(shown.text, tabIndex="0")], className="listing")


def fold(exhibit: Exhibit, page: str, view: View) -> Component:
    """The numbers: open where there is no picture."""
    if not exhibit.sheet.rows:
        return html.Div()
    address = "data/table.csv?" + urlencode({**view.kept, "page": page.lstrip("/"), "id": exhibit.id})
    body = [html.Summary("Numbers"), table(exhibit.sheet), html.A("CSV", href=address, download=f"{exhibit.id}.csv")]
    return html.Details(body, open=exhibit.chart is None or exhibit.sheet.is_tool)


def table(sheet: Sheet) -> Component:
    """A sheet as an HTML table; long ones are cut with a note (the CSV has all rows)."""
    rows = [[*map(_told, row, sheet.columns)] for row in sheet.rows[:MAX_TABLE_ROWS]]
    rest = sheet.rest(len(rows))
    note = html.P(f"{rest}: in the CSV.", className="quiet") if rest else None
    heads = headings(sheet)
    if sheet.is_tool or len(rows) * len(sheet.columns) > MAX_CELL_COMPONENTS:
        commands = [sheet.command(row) for row in range(len(rows))] if sheet.commands else []
        data: dict[str, Any] = {
            "data-sheet": json.dumps([[words for words, _ in heads], rows, sheet.is_tool, commands])
        }
        place: Any = html.Div(className="scroll sheet", tabIndex="0", **data)  # filled by assets/dashboard/tables.js
        return html.Div([place, note])
    head = [html.Th(words, scope="col", className=kind) for words, kind in heads]
    body = [html.Tr([html.Td(text, className=kind) for text, kind, *_ in row]) for row in rows]
    content = html.Table([html.Thead(html.Tr(head)), html.Tbody(body)])
    return html.Div([html.Div(content, className="scroll", tabIndex="0"), note])


def _told(value: Any, column: str) -> tuple[str, ...]:
    """Text and CSS class of a cell, and the full name where it is shortened."""
    text, kind = cell(value, column)
    return (text, kind, str(value)) if kind == NAME and text != value else (text, kind)


def step_bar(row: dict[str, float], words: str, view: View) -> Component:
    """A ledger row as one stacked bar with letters; its legend shows times and shares and links to the pages."""
    parts = shares(row)
    bar = [
        html.Div(
            CAUSES[cause].letter if share > 0.02 else "",
            className=f"part texture-{CAUSES[cause].texture}" if CAUSES[cause].texture else "part",
            style={"width": f"{share * 100:.4f}%", "background": colour(cause)},
            title=title_words(row, cause),
        )
        for cause, share in parts.items()
    ]
    legend = []
    for cause in (cause for cause, share in parts.items() if share > phrases.LEAST_SHARE):
        swatch = html.Span(CAUSES[cause].letter, className="swatch", style={"background": colour(cause)})
        told = legend_words(row, cause)
        link = dcc.Link(told, href=view.link(page_of_cause(cause))) if view.opened.has_traces else told
        legend.append(html.Li([swatch, link]))
    return html.Div(
        [html.Div(bar, className="stepbar", role="img", **aria(label=words)), html.Ul(legend, className="legend")]
    )


def finding_card(view: View, number: int, finding: Finding, full: bool) -> Component:
    """A finding: title, ranks, gain with range, fixes, links. `full` adds everything known of it."""
    report = view.opened.report
    tried = [("Tried", words) for words in try_it.words_of(view.opened, finding) if full]
    sources = dict.fromkeys(fix.source for fix in finding.fixes if fix.source and full)
    rows = [*finding_rows(report, finding, full, tried), *(("Source", source) for source in sources)]
    title = f" {number + 1}. {phrases.clean(finding.summary)} ", html.Code(finding.id)
    commands = [listing(command) for command in try_it.of_finding(view.opened, finding) if full]
    links = html.Div(_links(view, number, finding, full), className="links")
    return _card(report.severity_of(finding), title, rows, finding.fixes if full else (), *commands, links)


def remark_cards(report: Report) -> list[Component]:
    """Cards of remarks that may spoil the training and cost no time, under a heading; none without remarks."""
    cards = []
    for remark in report.training.remarks:
        title = (f" {phrases.remark_words(remark)}",)
        cards.append(_card(remark.severity, title, remark_rows(remark), remark.fixes))
    return [html.H2(phrases.TRAINING_TITLE), *cards] if cards else []


def _card(
    severity: str, title: Sequence[Component | str], rows: Rows, fixes: Sequence[Fix], *end: Component
) -> Component:
    """A card of rows of facts, and of the patches of some fixes."""
    head = html.Span(f"{_ICONS.get(severity, '')} {severity}", className=f"severity {severity}")
    facts = [part for name, text in rows for part in (html.Dt(name), html.Dd(phrases.on_page(text)))]
    patches = [html.Pre("\n".join(map(phrases.clean, fix.patch.splitlines()))) for fix in fixes if fix.patch]
    content = [html.H3([head, *title]), html.Dl(facts), *patches, *end]
    return html.Article(content, className=f"card {severity}")


def _links(view: View, number: int, finding: Finding, full: bool) -> list[Component]:
    links: list[Component] = []
    if view.opened.has_traces and any(e.start_us is not None for e in finding.evidence):
        links.append(dcc.Link("Show in timeline", href=view.link("/timeline", finding=str(number))))
    if not full:
        links.append(dcc.Link("All evidence and fixes", href=view.link("/findings")))
    evidence = page_of_finding(finding.id)
    if view.opened.has_traces and evidence is not None:
        title, path = evidence
        links.append(dcc.Link(f"More on {title}", href=view.link(path)))
    if view.opened.has_traces:
        chosen = [offer.suggested for offer in view.opened.offers if offer.because == number and offer.suggested]
        remedy = {setting.key: text_of(setting).partition("=")[2] for setting in chosen}
        links.append(dcc.Link("What if it were fixed", href=view.link("/what-if", **remedy)))
    return links


def whole_run(view: View, what: str) -> list[Component]:
    """A line above contents that no filter changes, where a filter is set; nothing where none is."""
    words = unfiltered_words(view.filtered)
    return [notice(f"{what}: {words[0].lower()}{words[1:]}")] if words else []


def notice(text: str, kind: str = "info") -> Component:
    """A sentence that stands out: an error, or the reason why a page is empty."""
    return html.P(text, className=f"notice {kind}", role="alert" if kind == "error" else "note")


def page_of_finding(identifier: str) -> tuple[str, str] | None:
    """Title and address of the page with more on a finding; None without one."""
    return _OF_FINDING.get(identifier.partition(".")[0])


def page_of_cause(cause: str) -> str:
    """Address of the page on a cause."""
    return _OF_BOUND[CAUSES[cause].bound]
