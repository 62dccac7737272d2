"""All pages of the dashboard as one self-contained HTML file: no request, no server, light, dark and print."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace

from ddprof.dashboard.assets import joined
from ddprof.dashboard.exhibits.catalogue import Subject
from ddprof.dashboard.onefile.names import further_names, written
from ddprof.dashboard.onefile.sections import Edition, page_section, subjects
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.report import phrases
from ddprof.report.html.markup import Markup, tag
from ddprof.report.html.page import embedded, page
from ddprof.report.json.contract import to_contract
from ddprof.report.redact import Redaction

_TIMELINE = ("timeline", "embedded")  # folders of scripts that only a file with events needs


def render(opened: OpenRun, before: OpenRun | None = None, redact: bool = False) -> str:
    """The file of a run; `before` is another run that it is compared with. `redact` hashes names, verdicts stay."""
    edition = _redacted(opened, before) if redact else _edition(opened, before)
    report = edition.view.opened.report
    shown = subjects(edition)
    sections = [page_section(edition, subject) for subject in shown]
    return page(
        f"ddprof: {report.run.name or 'report'}",
        phrases.run_words(report),
        sections,
        embedded(to_contract(report)),
        joined(".css", "shared", "timeline", "onefile"),
        joined(".js", "shared", *(_TIMELINE if opened.has_traces else ()), "onefile"),
        _navigation(shown),
    )


def _navigation(shown: list[Subject]) -> Markup:
    links = [tag("li", tag("a", subject.title, href=f"#{subject.anchor}")) for subject in shown]
    return tag("nav", tag("ul", *links), class_="pages", aria_label="Pages")


def _edition(opened: OpenRun, before: OpenRun | None) -> Edition:
    return Edition(
        View(opened, {}, (opened,)), _comparison(opened, before), lambda e: e, lambda name: name, lambda text: text
    )


def _comparison(opened: OpenRun, before: OpenRun | None) -> View | None:
    return None if before is None else View(before, {"against": "1"}, (before, opened))


def _redacted(opened: OpenRun, before: OpenRun | None) -> Edition:
    """Both runs with one key: a host that is in both has one hash."""
    key = os.environ.get("DDPROF_REDACT_KEY", "").encode() or secrets.token_bytes(16)
    redaction = Redaction(opened.report, key, further_names(opened))
    hidden = replace(opened, report=redaction.report())
    other = replace(before, report=Redaction(before.report, key, further_names(before)).report()) if before else None
    return Edition(
        View(hidden, {}, (hidden,)),
        _comparison(hidden, other),
        lambda exhibit: written(exhibit, redaction),
        redaction.event,
        redaction.text,
    )
