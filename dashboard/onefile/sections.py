"""The pages of the file, in the order of the dashboard's navigation: each a section with the address of its subject."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ddprof.dashboard.exhibits.catalogue import SUBJECTS, Subject
from ddprof.dashboard.exhibits.compare import comparison_of
from ddprof.dashboard.exhibits.parts import try_it
from ddprof.dashboard.exhibits.parts.checks import check_words
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit
from ddprof.dashboard.exhibits.parts.trials import words_of
from ddprof.dashboard.exhibits.what_if import settings_alone
from ddprof.dashboard.onefile.exhibits import exhibit_section, listing_block
from ddprof.dashboard.onefile.timeline import timeline_section
from ddprof.dashboard.runs.view import View
from ddprof.findings import Finding
from ddprof.report import phrases
from ddprof.report.comparison.text import headline
from ddprof.report.html import parts
from ddprof.report.html.markup import Markup, join, tag


@dataclass(frozen=True)
class Edition:
    """What a file is made of: the run, the comparison where there is one, and how names are written; `is_redacted`:
    without them."""

    view: View
    comparison: View | None
    exhibit: Callable[[Exhibit], Exhibit]
    event: Callable[[str], str]
    text: Callable[[str], str]
    is_redacted: bool = False


def subjects(edition: Edition) -> list[Subject]:
    """The pages that this file has: Compare only where there are two runs."""
    return [s for s in SUBJECTS if s.anchor != "compare" or edition.comparison is not None]


def page_section(edition: Edition, subject: Subject) -> Markup:
    """One page; its heading takes the focus when it is shown."""
    if subject.needs_traces and not edition.view.opened.has_traces:
        words = "A saved report does not hold what this page shows: make the file from the traces."
        content = [_title(subject.title), tag("p", words, class_="notice")]
    else:
        content = list(_CONTENT.get(subject.anchor, _plain)(edition, subject))
    return tag("section", *content, class_="page", id=subject.anchor, aria_label=subject.title)


def _title(words: str) -> Markup:
    return tag("h1", words, tabindex="-1")


def _exhibits(edition: Edition, subject: Subject, view: View | None = None) -> list[Markup]:
    return [exhibit_section(edition.exhibit(e)) for e in subject.exhibits(view or edition.view)]


def _plain(edition: Edition, subject: Subject) -> Iterator[Markup]:
    yield _title(subject.title)
    yield from _exhibits(edition, subject)


def _overview(edition: Edition, subject: Subject) -> Iterator[Markup]:
    report = edition.view.opened.report
    ranked = report.ranked_findings()
    yield _title(phrases.headline(report))
    yield from parts.verdict(report)[1:]
    yield parts.step(report)
    if ranked:
        words = "By the step time that fixing them saves. Gains overlap: they are not to be added."
        cards = [_card(edition, n, f, full=False) for n, f in enumerate(ranked[: phrases.MAX_FINDINGS])]
        more = tag("p", tag("a", "All evidence and fixes", href="#findings"), class_="links")
        yield tag("section", tag("h2", "What to do first"), tag("p", words, class_="quiet"), *cards, more)
    else:
        yield tag("section", tag("h2", "Findings"), tag("p", phrases.nothing_found_words(report)))
    yield parts.training(report)
    yield from _exhibits(edition, subject)
    yield parts.limits(report, check_words)


def _findings(edition: Edition, subject: Subject) -> Iterator[Markup]:
    yield from _plain(edition, subject)
    for number, finding in enumerate(edition.view.opened.report.ranked_findings()):
        yield _card(edition, number, finding, full=True)


def _card(edition: Edition, number: int, finding: Finding, full: bool) -> Markup:
    links = None
    opened = edition.view.opened
    if opened.has_traces and (first := _first_span(edition, number)) is not None:
        links = tag("p", tag("a", "Show in timeline", href=f"#timeline/{first}"), class_="links")
    commands = try_it.of_finding(opened, finding) if full and not edition.is_redacted else ()
    tried = [("Tried", edition.text(words)) for words in words_of(opened, finding) if full]
    return parts.card(opened.report, finding, number + 1, join(*map(listing_block, commands), links), full, tried)


def _first_span(edition: Edition, number: int) -> int | None:
    """Place among the timeline's shaded spans of a finding's first one (configuration() lists them in this order)."""
    found = edition.view.opened.report.ranked_findings()
    counts = [sum(e.start_us is not None for e in f.evidence) for f in found]
    return sum(counts[:number]) if counts[number] else None


def _timeline(edition: Edition, subject: Subject) -> Iterator[Markup]:
    yield _title(subject.title)
    yield from timeline_section(edition.view, edition.event, edition.text)


def _what_if(edition: Edition, subject: Subject) -> Iterator[Markup]:
    yield from _plain(edition, subject)
    if edition.view.opened.has_traces:
        yield exhibit_section(edition.exhibit(settings_alone(edition.view.opened)))


def _compare(edition: Edition, subject: Subject) -> Iterator[Markup]:
    yield _title(subject.title)
    if edition.comparison is None:
        return
    comparison = comparison_of(edition.comparison)
    yield tag("p", tag("strong", headline(comparison)), class_="reading")
    for words in comparison.differences:
        yield tag("p", f"Not the same kind of run: {words}", class_="notice")
    for words in comparison.notes:
        yield tag("p", words, class_="notice")
    yield from _exhibits(edition, subject, edition.comparison)


_CONTENT: dict[str, Callable[[Edition, Subject], Iterator[Markup]]] = {
    "overview": _overview,
    "findings": _findings,
    "timeline": _timeline,
    "what-if": _what_if,
    "compare": _compare,
}
