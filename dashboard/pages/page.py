"""A page of the dashboard: its subject and its layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dash import dcc, html
from dash.development.base_component import Component

from ddprof.dashboard.exhibits.catalogue import Subject
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit
from ddprof.dashboard.pages.cards import exhibit_card, notice
from ddprof.dashboard.runs.view import View

REFRESH_MS = 2_000  # of pages about a running job


@dataclass(frozen=True)
class Page:
    """A page of the dashboard. `layout`: None where it is its exhibits one below the other.

    `now`: what of the page is drawn again every two seconds, which no screen reader should read out each time.
    """

    subject: Subject
    layout: Callable[[View], list[Component]] | None = None
    now: Callable[[View], list[Component]] | None = None

    @property
    def path(self) -> str:
        """Address of the page."""
        return self.subject.path

    @property
    def title(self) -> str:
        """Name of the page in the navigation."""
        return self.subject.title

    def exhibits(self, view: View) -> Iterable[Exhibit]:
        """The page's exhibits."""
        return self.subject.exhibits(view)

    @property
    def clock(self) -> str:
        """Id of the component whose ticks redraw the page."""
        return f"{self.subject.anchor}-clock"

    def content(self, view: View) -> list[Component]:
        """The components of the page."""
        if self.subject.needs_traces and not view.opened.has_traces:
            return [html.H1(self.title), notice("A saved report does not hold what this page shows. Serve the traces.")]
        if self.layout is not None:
            return self.layout(view)
        if self.now is not None:
            clock = dcc.Interval(id=self.clock, interval=REFRESH_MS)
            return [html.H1(self.title), clock, html.Div(self.now(view), id=self.subject.anchor)]
        return [html.H1(self.title), *(exhibit_card(e, self.path, view) for e in self.exhibits(view))]
