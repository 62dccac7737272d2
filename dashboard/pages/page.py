"""A page of the dashboard: its subject and its layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dash import dcc, html
from dash.development.base_component import Component

from ddprof.dashboard.exhibits.catalogue import Subject
from ddprof.dashboard.pages.cards import exhibit_card, notice
from ddprof.dashboard.runs.view import View

REFRESH_MS = 2_000  # of pages about a running job


@dataclass(frozen=True)
class Page(Subject):
    """A page of the dashboard. `layout`: None where it is its exhibits one below the other.

    `now`: what of the page is drawn again every two seconds, which no screen reader should read out each time.
    """

    layout: Callable[[View], list[Component]] | None = None
    now: Callable[[View], list[Component]] | None = None

    @property
    def clock(self) -> str:
        """Id of the component whose ticks redraw the page."""
        return f"{self.anchor}-clock"

    def content(self, view: View) -> list[Component]:
        """The components of the page."""
        if self.needs_traces and not view.opened.has_traces:
            return [html.H1(self.title), notice("A saved report does not hold what this page shows. Serve the traces.")]
        if self.layout is not None:
            return self.layout(view)
        if self.now is not None:
            clock = dcc.Interval(id=self.clock, interval=REFRESH_MS)
            return [html.H1(self.title), clock, html.Div(self.now(view), id=self.anchor)]
        return [html.H1(self.title), *(exhibit_card(e, self.path, view) for e in self.exhibits(view))]
