"""The Dash application: frame, navigation, filters in the address, one callback that draws the page of an address."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import flask
from dash import ClientsideFunction, Dash, Input, Output, State, ctx, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from ddprof.dashboard.assets import FOLDER as ASSETS_FOLDER
from ddprof.dashboard.pages import what_if
from ddprof.dashboard.pages.cards import aria, notice
from ddprof.dashboard.pages.catalogue import PAGES, page_at
from ddprof.dashboard.pages.page import Page
from ddprof.dashboard.runs.perfetto import PERFETTO_UI
from ddprof.dashboard.runs.served import Runs
from ddprof.dashboard.runs.view import View, parse_query, view_of
from ddprof.dashboard.server.guard import Access, bound, protect
from ddprof.dashboard.server.routes import routes
from ddprof.dashboard.server.scripts import add_scripts, address, plotly_address, styles
from ddprof.dashboard.server.uploads import upload_route
from ddprof.errors import DdprofError, UsageError
from ddprof.report import phrases
from ddprof.report.html.style import STYLE

TIMELINE_PATH = "/timeline"
REFRESH_MS = 5_000  # between two looks for new runs
THEME_COOKIE = "ddprof_theme"  # set by assets/dashboard/theme.js before the first callback

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta name="viewport" content="width=device-width, initial-scale=1">
{%metas%}
<title>{%title%}</title>
<link rel="icon" href="data:,">
<style>__STYLE__</style>
{%css%}
</head>
<body>
{%app_entry%}
<footer class="dash-footer">{%config%}
<script src="__SCRIPTS__" data-plotly="__PLOTLY__"></script>{%scripts%}{%renderer%}</footer>
</body>
</html>"""


def create_app(runs: Runs, access: Access, upload_bytes: int = 0, perfetto_ui: str = PERFETTO_UI) -> Dash:
    """The application for some runs and the visitors whom `access` admits.

    `upload_bytes`: the largest upload that may add runs; 0: none. `perfetto_ui`: where the timeline's button leads.
    """
    page = _PAGE.replace("__STYLE__", STYLE + styles())
    app = Dash(
        "ddprof.dashboard",
        title="ddprof",
        update_title="",
        assets_folder=str(ASSETS_FOLDER),
        assets_ignore=".*",  # they come as one file
        serve_locally=True,
        suppress_callback_exceptions=True,
        index_string=page.replace("__SCRIPTS__", address()).replace("__PLOTLY__", plotly_address()),
    )
    app.layout = html.Div(
        [
            dcc.Location(id="address", refresh="callback-nav"),
            dcc.Interval(id="clock", interval=REFRESH_MS),
            dcc.Store(id="version", data=0),
            html.A("Skip to content", href="#content", className="skip"),
            html.Header(id="top"),
            html.Nav(id="navigation", **aria(label="Pages")),
            html.Main(id="content", tabIndex="-1"),
        ],
        id="frame",
    )
    _callbacks(app, runs, upload_bytes, perfetto_ui)
    app.server.register_blueprint(routes(runs))
    add_scripts(app.server)
    if upload_bytes:
        app.server.register_blueprint(upload_route(runs, upload_bytes))
    protect(app.server, access, app.csp_hashes())
    bound(app, upload_bytes)
    app.server.before_request(lambda: _expect(runs))  # behind the guard
    return app


def _expect(runs: Runs) -> None:
    """The lanes of a timeline are worked out while the browser reads the scripts of its page."""
    if flask.request.method == "GET" and flask.request.path == TIMELINE_PATH:
        make_view(runs, flask.request.query_string.decode("latin-1")).opened.expect_timeline()


def _callbacks(app: Dash, runs: Runs, upload_bytes: int, perfetto_ui: str) -> None:
    @app.callback(Output("version", "data"), Input("clock", "n_intervals"), State("version", "data"))
    def look(_: int | None, shown: int) -> int:
        version = runs.refresh()
        if version == shown:
            raise PreventUpdate
        return version

    @app.callback(
        Output("top", "children"),
        Output("navigation", "children"),
        Output("content", "children"),
        Input("address", "pathname"),
        Input("address", "search"),
        Input("version", "data"),
    )
    def draw(path: str | None, search: str | None, _: int) -> tuple[Any, Any, Any]:
        view = replace(make_view(runs, search or ""), upload_bytes=upload_bytes, perfetto_ui=perfetto_ui)
        return _top(view, runs), _navigation(view, path or "/"), page_content(view, path or "/")

    @app.callback(
        Output("address", "search"),
        Input("filter-apply", "n_clicks"),
        Input("filter-ranks", "n_submit"),
        Input("filter-steps", "n_submit"),
        State("filter-ranks", "value"),
        State("filter-steps", "value"),
        State("address", "search"),
        prevent_initial_call=True,
    )
    def narrow(_c: int | None, _a: int | None, _b: int | None, ranks: str, steps: str, search: str) -> str:
        if not any(item["value"] for item in ctx.triggered):
            raise PreventUpdate
        return make_view(runs, search or "").link("", ranks=ranks or "", steps=steps or "")

    @app.callback(Output("what-if-result", "children"), Input("what-if-values", "data"), State("address", "search"))
    def replay(values: dict[str, Any] | None, search: str | None) -> list[Component]:
        return what_if.outcome(make_view(runs, search or ""), values or {})

    for page in PAGES:
        if page.now is not None:
            _draw_again(app, runs, page, page.now)

    client: Any = app  # this method of Dash has no types
    for script, part in (("mount", "timeline"), ("controls", "what-if"), ("uploadForm", "upload")):
        mounted, config = Output(f"{part}-mounted", "children"), Input(f"{part}-config", "data")
        client.clientside_callback(ClientsideFunction("ddprof", script), mounted, config)


def _draw_again(app: Dash, runs: Runs, page: Page, now: Callable[[View], list[Component]]) -> None:
    @app.callback(Output(page.anchor, "children"), Input(page.clock, "n_intervals"), State("address", "search"))
    def watch(_: int | None, search: str | None) -> list[Component]:
        view = make_view(runs, search or "")
        return or_notice(lambda: now(view))


def make_view(runs: Runs, search: str) -> View:
    """The view of an address, in the browser's theme; of the first run where the address is malformed."""
    try:
        query = parse_query(search)
    except UsageError:
        query = {}
    dark = flask.has_request_context() and flask.request.cookies.get(THEME_COOKIE) == "dark"
    return view_of(runs.open_runs, query, dark)


def page_content(view: View, path: str) -> list[Component]:
    """The page, or one line on what is wrong with the request."""
    return or_notice(lambda: page_at(path).content(view))


def or_notice(content: Callable[[], list[Component]]) -> list[Component]:
    """Some content, or one line on why there is none."""
    try:
        return content()
    except DdprofError as error:
        return [notice(phrases.clean(str(error)), "error")]


def _top(view: View, runs: Runs) -> list[Component]:
    report = view.opened.report
    # Links, not Dash's dropdown: that one hides an input which the keyboard can reach.
    links = [
        dcc.Link(name, href=f"?run={view.ids[i]}", className="current" if i == view.run else "")
        for i, name in enumerate(view.names)
    ]
    choose = html.Div(links if len(links) > 1 else [], className="runs")
    ranks = dcc.Input(id="filter-ranks", value=view.query.get("ranks", ""), placeholder="all, or 0-3,7", debounce=True)
    steps = dcc.Input(id="filter-steps", value=view.query.get("steps", ""), placeholder="all, or 0-2", debounce=True)
    filters = html.Div(
        [
            choose,
            html.Label(["Ranks ", ranks]),
            html.Label(["Steps ", steps]),
            html.Button("Apply", id="filter-apply", type="button"),
            html.A("Report JSON", href=f"data/report.json?run={view.ids[view.run]}", download="ddprof-report.json"),
            html.Button("Light / dark", id="theme", type="button", className="theme-button"),
        ],
        className="filters no-print",
    )
    problem = [notice(f"Shown is an older state: {runs.problem}", "error")] if runs.problem else []
    return [html.Div([html.Strong("ddprof"), " ", phrases.run_words(report)], className="run-words"), filters, *problem]


def _navigation(view: View, path: str) -> list[Component]:
    links: list[Component] = []
    for page in PAGES:
        is_empty = page.is_empty(view)
        names = " ".join(["current"] * (page.path == path) + ["empty"] * is_empty)
        title = "Nothing of this was recorded" if is_empty else ""
        links.append(dcc.Link(page.title, href=view.link(page.path), className=names, title=title))
    return links
