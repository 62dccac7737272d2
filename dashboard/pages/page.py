"""A page of the dashboard: its subject, and how it is laid out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dash import html
from dash.development.base_component import Component

from ddprof.dashboard.exhibits.catalogue import Subject
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit
from ddprof.dashboard.pages.cards import exhibit_card, notice
from ddprof.dashboard.runs.view import View


@dataclass(frozen=True)
class Page:
    """`layout` is None where the page is its exhibits one below the other."""

    subject: Subject
    layout: Callable[[View], list[Component]] | None = None

    @property
    def path(self) -> str:
        """Its address."""
        return self.subject.path

    @property
    def title(self) -> str:
        """Its name in the navigation."""
        return self.subject.title

    def exhibits(self, view: View) -> Iterable[Exhibit]:
        """What it shows."""
        return self.subject.exhibits(view)

    def content(self, view: View) -> list[Component]:
        """The components of the page."""
        if self.subject.needs_traces and not view.opened.has_traces:
            return [html.H1(self.title), notice("A saved report does not hold what this page shows. Serve the traces.")]
        if self.layout is not None:
            return self.layout(view)
        return [html.H1(self.title), *(exhibit_card(e, self.path, view) for e in self.exhibits(view))]
