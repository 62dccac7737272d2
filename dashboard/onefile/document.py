"""All pages of the dashboard as one self-contained HTML file: no request, no server, light, dark and print."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ddprof.causes import CAUSES
from ddprof.dashboard.assets import joined
from ddprof.dashboard.exhibits.catalogue import SUBJECTS, Subject
from ddprof.dashboard.exhibits.compare import comparison_of
from ddprof.dashboard.exhibits.data import check_words
from ddprof.dashboard.exhibits.parts import try_it
from ddprof.dashboard.exhibits.parts.arrangement import arrangement
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, sheet
from ddprof.dashboard.exhibits.parts.try_it import words_of
from ddprof.dashboard.exhibits.timeline import configuration, reading
from ddprof.dashboard.exhibits.what_if import settings_alone
from ddprof.dashboard.onefile.exhibits import exhibit_section, library, listing_block, packed
from ddprof.dashboard.onefile.names import redaction_of, written
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.dashboard.timeline.index import one_step, step_count
from ddprof.dashboard.timeline.inspect import largest_waits, path_runs
from ddprof.dashboard.timeline.lanes import Timeline
from ddprof.dashboard.timeline.tiles import MAX_BINS, MAX_LANES, encode, overview, timeline_info
from ddprof.errors import DdprofError
from ddprof.findings import Finding
from ddprof.report import phrases
from ddprof.report.comparison.text import comparison_headline
from ddprof.report.html import parts
from ddprof.report.html.markup import Markup, join, tag
from ddprof.report.html.style import embedded, page
from ddprof.report.json.contract import to_contract
from ddprof.report.redaction.redact import Redaction

# The timeline inside the file: lanes, one tile of the whole run, the longest waits and the critical path, packed.
#
# Kinds of lanes with few slices are held exactly while the budget lasts; of the others each bin holds what filled it.

EXACT_SLICES = 120_000  # 17 bytes each before packing
BINNED_BYTES = 600_000  # of all merged lanes, two bytes a bin, before packing
LEAST_BINS = 256
_OWN = frozenset(cause.label for cause in CAUSES.values())  # names of slices that are ours, and so public
_STEP = re.compile(r"step \d+( \(marked -?\d+\))?")
MAX_STEPS = 20_000  # spans of one rank's step each
MAX_PATH = 4_000  # stretches of the critical path


def timeline_section(view: View, redaction: Redaction | None) -> list[Markup]:
    """The page's content."""
    event, text = (redaction.event, redaction.text) if redaction else (str, str)
    lanes = _embedded_lanes(view.opened.timeline, configuration(view)["culprits"])
    timeline = view.opened.timeline
    renamed = tuple(replace(lane, host=text(lane.host), label=text(lane.label)) for lane in timeline.lanes)
    names = tuple(name if name in _OWN or _STEP.fullmatch(name) else event(name) for name in timeline.names)
    timeline = replace(timeline, names=names, lanes=renamed)
    held = json.dumps(_held(view, timeline, lanes, text), allow_nan=False, separators=(",", ":")).encode()
    index = timeline.index
    bins = min(MAX_BINS, max(LEAST_BINS, BINNED_BYTES // 2 // max(1, len(lanes))))
    tile = encode(timeline, lanes, index.lo_ns, index.hi_ns, bins, EXACT_SLICES)
    words = " ".join((reading(view), _left_out(timeline, lanes)))
    return [
        tag("div", id="timeline-root", class_="timeline"),
        tag("p", words, class_="reading"),
        tag("noscript", tag("p", "The timeline is drawn by a script; the table below names the same spans.")),
        exhibit_section(spans_exhibit(view)),
        packed("timeline-held", held),
        packed("timeline-tile", tile),
    ]


def spans_exhibit(view: View) -> Exhibit:
    """The shaded spans as a table, for readers without the picture."""
    report = view.opened.report
    rows = [
        (n, e.rank, e.start_us / 1e3, None if e.end_us is None else e.end_us / 1e3, f"{f.summary}: {e.text}")
        for n, f in enumerate(report.ranked_findings(), 1)
        for e in f.evidence
        if e.start_us is not None
    ]
    table = sheet(("finding", "rank", "from (ms)", "to (ms)", "what"), rows)
    spoken = "Spans of the findings' evidence, shaded above; times since the first step mark."
    return Exhibit("spans", "Where are the findings seen?", spoken if rows else "No finding names a span.", table)


def _embedded_lanes(timeline: Timeline, culprits: Collection[int]) -> list[int]:
    """Lanes in the file: time by cause for every rank, then lanes of ranks that a finding names, then the rest."""

    def place(lane: int) -> tuple[bool, bool, int]:
        entry = timeline.lanes[lane]
        return entry.kind != "causes", entry.rank not in culprits, lane

    return sorted(sorted(range(len(timeline.lanes)), key=place)[:MAX_LANES])


def _held(view: View, timeline: Timeline, lanes: list[int], text: Callable[[str], str]) -> dict[str, Any]:
    opened, kept = view.opened, set(lanes)
    info, most = timeline_info(timeline), MAX_STEPS // max(1, len(timeline.steps))  # as few steps as can be embedded
    steps = [one_step(timeline.steps, number) for number in range(min(most, step_count(timeline.steps)))]
    info["lanes"] = [lane for lane in info["lanes"] if lane["id"] in kept]
    waits = largest_waits(opened.job, timeline.index.lo_ns, timeline.index.hi_ns)
    return {
        "config": configuration(view),
        "info": {**info, "fixed": True, "steps": len(steps)},
        "waits": waits,
        "overview": overview(timeline),
        "path": _path(view),
        "steps": steps,
        "arrangement": arrangement(opened.job),
        "counters": [{**track, "label": text(track["label"])} for track in opened.counters],
    }


def _path(view: View) -> list[list[float]]:
    """The critical path, only its longest stretches where there are many; [] where the run cannot be replayed."""
    try:
        runs = path_runs(view.opened.job, view.opened.critical)
    except DdprofError:
        return []
    if len(runs) <= MAX_PATH:
        return runs
    return sorted(sorted(runs, key=lambda run: run[1] - run[2])[:MAX_PATH], key=lambda run: run[1])


def _left_out(timeline: Timeline, lanes: list[int]) -> str:
    """Content that the file omits, in words; "" for none."""
    words = []
    if sum(timeline.lanes[lane].slices for lane in lanes) > EXACT_SLICES:
        words.append("Lanes with many slices are merged in this file; ddprof serve shows every slice.")
    if left := len(timeline.lanes) - len(lanes):
        words.append(f"{left} lanes are left out.")
    return " ".join(words)


_TIMELINE = ("timeline", "embedded")  # folders of scripts that only a file with events needs


def render(opened: OpenRun, before: OpenRun | None = None, key: bytes | None = None, only: str = "") -> str:
    """The HTML file of a run; `before` is another run to compare it with. `key`: names are hashed, verdicts stay.

    `only`: the anchor of the one page that it is to have.
    """
    edition = _edition(opened, before, key)
    report = edition.view.opened.report
    of_two = edition.comparison is not None
    shown = [s for s in SUBJECTS if (of_two or s.anchor != "compare") and only in ("", s.anchor)]
    sections = [_page_section(edition, subject) for subject in shown]
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


@dataclass(frozen=True)
class _Edition:
    """Content of a file: the run, an optional comparison, and what hides their names."""

    view: View
    comparison: View | None
    redaction: Redaction | None

    def section(self, exhibit: Exhibit) -> Markup:
        """The section of an exhibit of the run."""
        return exhibit_section(written(exhibit, self.redaction) if self.redaction else exhibit)


def _edition(opened: OpenRun, before: OpenRun | None, key: bytes | None) -> _Edition:
    """Both runs are hidden with one key, so that a host in both has one hash."""
    redaction = None if key is None else redaction_of(opened, key)
    if redaction is not None and key is not None:
        opened = replace(opened, report=redaction.report())
        before = replace(before, report=redaction_of(before, key).report()) if before else None
    comparison = View(before, {"against": "1"}, (before, opened)) if before else None
    return _Edition(View(opened, {}, (opened,)), comparison, redaction)


def _page_section(edition: _Edition, subject: Subject) -> Markup:
    """One page; its heading takes the focus when it is shown."""
    if subject.needs_traces and not edition.view.opened.has_traces:
        words = "A saved report does not hold what this page shows: make the file from the traces."
        content = [_title(subject.title), tag("p", words, class_="notice")]
    else:
        content = list(_CONTENT.get(subject.anchor, _plain)(edition, subject))
    return tag("section", *content, class_="page", id=subject.anchor, aria_label=subject.title)


def _title(words: str) -> Markup:
    return tag("h1", words, tabindex="-1")


def _exhibits(edition: _Edition, subject: Subject, view: View | None = None) -> list[Markup]:
    return [edition.section(e) for e in subject.exhibits(view or edition.view)]


def _plain(edition: _Edition, subject: Subject) -> Iterator[Markup]:
    yield _title(subject.title)
    yield from _exhibits(edition, subject)


def _overview(edition: _Edition, subject: Subject) -> Iterator[Markup]:
    report = edition.view.opened.report
    ranked = report.ranked_findings()
    yield from parts.verdict(report, _title(phrases.headline(report)))
    yield parts.step(report)
    if ranked:
        words = f"{phrases.order_words(report).capitalize()}. Gains overlap; never add them."
        cards = [_card(edition, n, f, full=False) for n, f in enumerate(ranked[: phrases.MAX_FINDINGS])]
        more = tag("p", tag("a", "All evidence and fixes", href="#findings"), class_="links")
        yield tag("section", tag("h2", "What to do first"), tag("p", words, class_="quiet"), *cards, more)
    else:
        yield tag("section", tag("h2", "Findings"), tag("p", phrases.nothing_found_words(report)))
    yield parts.training(report)
    yield from _exhibits(edition, subject)
    yield parts.limits(report, check_words)


def _findings(edition: _Edition, subject: Subject) -> Iterator[Markup]:
    yield from _plain(edition, subject)
    for number, finding in enumerate(edition.view.opened.report.ranked_findings()):
        yield _card(edition, number, finding, full=True)


def _card(edition: _Edition, number: int, finding: Finding, full: bool) -> Markup:
    links = None
    opened = edition.view.opened
    if opened.has_traces and (first := _first_span(edition, number)) is not None:
        links = tag("p", tag("a", "Show in timeline", href=f"#timeline/{first}"), class_="links")
    commands = try_it.of_finding(opened, finding) if full and not edition.redaction else ()
    hide = edition.redaction.text if edition.redaction else str
    tried = [("Tried", hide(words)) for words in words_of(opened, finding) if full]
    return parts.card(opened.report, finding, number + 1, join(*map(listing_block, commands), links), full, tried)


def _first_span(edition: _Edition, number: int) -> int | None:
    """Index of a finding's first span among the timeline's shaded spans (configuration() lists them in this order)."""
    findings = edition.view.opened.report.ranked_findings()
    counts = [sum(e.start_us is not None for e in f.evidence) for f in findings]
    return sum(counts[:number]) if counts[number] else None


def _timeline(edition: _Edition, subject: Subject) -> Iterator[Markup]:
    yield _title(subject.title)
    yield from timeline_section(edition.view, edition.redaction)


def _what_if(edition: _Edition, subject: Subject) -> Iterator[Markup]:
    yield from _plain(edition, subject)
    if edition.view.opened.has_traces:
        yield edition.section(settings_alone(edition.view.opened))


def _compare(edition: _Edition, subject: Subject) -> Iterator[Markup]:
    yield _title(subject.title)
    if edition.comparison is None:
        return
    comparison = comparison_of(edition.comparison)
    yield tag("p", tag("strong", comparison_headline(comparison)), class_="reading")
    for words in comparison.differences:
        yield tag("p", f"Not the same kind of run: {words}", class_="notice")
    for words in comparison.notes:
        yield tag("p", words, class_="notice")
    yield from _exhibits(edition, subject, edition.comparison)


_CONTENT: dict[str, Callable[[_Edition, Subject], Iterator[Markup]]] = {
    "overview": _overview,
    "findings": _findings,
    "timeline": _timeline,
    "what-if": _what_if,
    "compare": _compare,
}
