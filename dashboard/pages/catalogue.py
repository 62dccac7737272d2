"""All pages in the order of the navigation.

A page is its address, its title, its exhibits, and how they are laid out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dash import html
from dash.development.base_component import Component
from ddprof.dashboard.cards import exhibit_card, notice
from ddprof.dashboard.exhibit import Exhibit
from ddprof.dashboard.pages import (
    communication,
    compare,
    data,
    findings,
    host,
    live,
    memory,
    overview,
    pipeline,
    ranks,
    timeline,
    what_if,
)
from ddprof.dashboard.view import View

from ddprof.errors import UsageError


@dataclass(frozen=True)
class Page:
    """`needs_traces`: a saved report cannot show it.

    `layout` is None where the page is its exhibits one below the other.
    """

    path: str
    title: str
    exhibits: Callable[[View], Iterable[Exhibit]]
    layout: Callable[[View], list[Component]] | None = None
    needs_traces: bool = False

    def content(self, view: View) -> list[Component]:
        """The components of the page."""
        if self.needs_traces and not view.session.has_traces:
            return [html.H1(self.title), notice("A saved report does not hold what this page shows. Serve the traces.")]
        if self.layout is not None:
            return self.layout(view)
        return [html.H1(self.title), *(exhibit_card(e, self.path, view) for e in self.exhibits(view))]


PAGES = (
    Page("/", "Overview", overview.exhibits, overview.content),
    Page("/findings", "Findings", findings.exhibits, findings.content),
    Page("/timeline", "Timeline", timeline.exhibits, timeline.content),
    Page("/ranks", "Ranks & steps", ranks.exhibits),
    Page("/communication", "Communication", communication.exhibits, needs_traces=True),
    Page("/host", "Input & host", host.exhibits, needs_traces=True),
    Page("/memory", "Memory", memory.exhibits, needs_traces=True),
    Page("/pipeline", "Pipeline", pipeline.exhibits, needs_traces=True),
    Page("/what-if", "What-if", what_if.exhibits, what_if.content),
    Page("/compare", "Compare", compare.exhibits, compare.content),
    Page("/data", "Data", data.exhibits),
    Page("/live", "Live", live.exhibits, live.content),
)
_BY_PATH = {page.path: page for page in PAGES}


def page_at(path: str) -> Page:
    """The page of an address. Raises UsageError where there is none."""
    found = _BY_PATH.get(path.rstrip("/") or "/")
    if found is None:
        raise UsageError(f"there is no page {path}")
    return found
