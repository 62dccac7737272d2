"""All screens of one run: terminal, Markdown, JSON, the pages of the dashboard, the HTML file."""

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dash.development.base_component import Component

from ddprof.cli.analyze import next_commands
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit
from ddprof.dashboard.onefile.document import render
from ddprof.dashboard.pages.catalogue import PAGES
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.findings import Finding
from ddprof.report import phrases
from ddprof.report.json.contract import to_document
from ddprof.report.markdown import render_markdown
from ddprof.report.model import Report
from ddprof.report.text import render_text
from tests.dashboard.made import texts

_WIDE = 100_000  # characters: nothing is wrapped


@dataclass
class Screens:
    """One run on every screen. Text is as it is read: of a page without its markup, runs of blanks as one."""

    opened: OpenRun

    @property
    def report(self) -> Report:
        return self.opened.report

    @property
    def lead(self) -> Finding | None:
        return phrases.leading(self.report)

    @cached_property
    def commands(self) -> list[str]:
        """Next commands that the terminal offers."""
        return next_commands(("RUN",), self.report, True)

    @cached_property
    def terminal(self) -> str:
        """`ddprof analyze RUN`."""
        return one_line(render_text(self.report, self.commands, full=True, width=_WIDE))

    @cached_property
    def markdown(self) -> str:
        """`ddprof analyze RUN --format markdown`, with what is escaped as it is shown."""
        return one_line(html.unescape(re.sub(r"\\(.)", r"\1", render_markdown(self.report, self.commands))))

    @cached_property
    def document(self) -> Any:
        """`ddprof analyze RUN --format json`."""
        return json.loads(json.dumps(to_document([self.report]), allow_nan=False))

    @cached_property
    def view(self) -> View:
        return View(self.opened, {}, (self.opened,))

    @cached_property
    def exhibits(self) -> dict[str, Exhibit]:
        """Every exhibit of the dashboard by its page and name, e.g. "/ranks blame"."""
        shown = (p for p in PAGES if p.path != "/live" and (self.opened.has_traces or not p.needs_traces))
        return {f"{page.path} {exhibit.id}": exhibit for page in shown for exhibit in page.exhibits(self.view)}

    @cached_property
    def pages(self) -> dict[str, str]:
        """The text of every page of the dashboard by its address."""
        return {page.path: one_line(" ".join(texts(page.content(self.view)))) for page in PAGES if page.path != "/live"}

    @cached_property
    def cards(self) -> list[str]:
        """The cards of the page Findings, one per finding."""
        return self._cards("/findings")

    @cached_property
    def first_cards(self) -> list[str]:
        """The cards of findings on the Overview."""
        return self._cards("/")[: len(self.report.ranked_findings())]

    def _cards(self, path: str) -> list[str]:
        page = next(page for page in PAGES if page.path == path)
        return [one_line(" ".join(texts(card))) for card in articles(page.content(self.view))]

    @cached_property
    def file(self) -> str:
        """`ddprof report RUN`."""
        return render(self.opened)

    @cached_property
    def file_text(self) -> str:
        """The words of that file, without tags and scripts."""
        shown = re.sub(r"<(script|style)\b.*?</\1>", " ", self.file, flags=re.DOTALL)
        return one_line(html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"</(td|th|dd|dt|p|h\d|li)>", " ", shown))))


def one_line(text: str) -> str:
    """Text with its blanks and line ends as single blanks, and its arrows as a terminal writes them."""
    return " ".join(text.replace(" ", " ").replace("→", "->").split())


def articles(node: Any) -> Iterator[Component]:
    """The cards among some components."""
    if isinstance(node, list | tuple):
        for item in node:
            yield from articles(item)
    elif isinstance(node, Component):
        if type(node).__name__ == "Article":
            yield node
        else:
            yield from articles(getattr(node, "children", None))
