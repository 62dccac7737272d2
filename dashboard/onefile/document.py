"""All pages of the dashboard as one self-contained HTML file: no request, no server, light, dark and print."""

from __future__ import annotations

from dataclasses import replace

from ddprof.dashboard.assets import joined
from ddprof.dashboard.exhibits.catalogue import Subject
from ddprof.dashboard.onefile.exhibits import library
from ddprof.dashboard.onefile.names import redaction_of, written
from ddprof.dashboard.onefile.sections import Edition, page_section, subjects
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.report import phrases
from ddprof.report.html.markup import Markup, join, tag
from ddprof.report.html.page import embedded, page
from ddprof.report.json.contract import to_contract

_TIMELINE = ("timeline", "embedded")  # folders of scripts that only a file with events needs


def render(opened: OpenRun, before: OpenRun | None = None, key: bytes | None = None, only: str = "") -> str:
    """The file of a run; `before` is another run that it is compared with. `key`: names are hashed, verdicts stay.

    `only`: the anchor of the one page that it is to have.
    """
    edition = _edition(opened, before) if key is None else _redacted(opened, before, key)
    report = edition.view.opened.report
    shown = [subject for subject in subjects(edition) if only in ("", subject.anchor)]
    sections = [page_section(edition, subject) for subject in shown]
    data = join(embedded(to_contract(report)), library())
    return page(
        f"ddprof: {report.run.name or 'report'}",
        phrases.run_words(report),
        sections,
        data,
        joined(".css", "shared", "timeline", "onefile"),
        joined(".js", "shared", *(_TIMELINE if opened.has_traces else ()), "onefile"),
        _navigation(shown if len(shown) > 1 else []),
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


def _redacted(opened: OpenRun, before: OpenRun | None, key: bytes) -> Edition:
    """Both runs with one key: a host that is in both has one hash."""
    redaction = redaction_of(opened, key)
    hidden = replace(opened, report=redaction.report())
    other = replace(before, report=redaction_of(before, key).report()) if before else None
    return Edition(
        View(hidden, {}, (hidden,)),
        _comparison(hidden, other),
        lambda exhibit: written(exhibit, redaction),
        redaction.event,
        redaction.text,
        is_redacted=True,
    )
