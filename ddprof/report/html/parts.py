"""Parts of a report as HTML, for notebooks and for the single file made by dashboard/onefile/.

Every name from a trace is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ddprof.causes import CAUSES
from ddprof.findings import Finding, Fix, Remark
from ddprof.report import data_notes, phrases
from ddprof.report.bar import legend_words, shares, title_words
from ddprof.report.html.markup import Markup, join, tag
from ddprof.report.html.style import STYLE, colour
from ddprof.report.model import Report

NAMED_MARK = " ◀"  # behind a rank that a finding names
_BAR_WIDTH = 1000.0
_LEAST_LETTER_WIDTH = 14.0


def step_bar(row: Mapping[str, float], label: str, height: float = 34.0) -> Markup:
    """A ledger row as one stacked bar; each part has its letter and a tooltip."""
    parts, at = [], 0.0
    for cause, share in shares(row).items():
        width = share * _BAR_WIDTH
        title = tag("title", title_words(row, cause))
        parts.append(tag("rect", title, x=at, y=0.0, width=width, height=height, style=f"fill:{colour(cause)}"))
        if width >= _LEAST_LETTER_WIDTH:
            letter = CAUSES[cause].letter
            parts.append(tag("text", letter, x=at + width / 2, y=height / 2 + 4, text_anchor="middle", class_="on-bar"))
        at += width
    box = f"0 0 {_BAR_WIDTH:g} {height:g}"
    return tag("svg", *parts, viewBox=box, preserveAspectRatio="none", class_="step", role="img", aria_label=label)


def legend(row: Mapping[str, float]) -> Markup:
    """The bar's causes with letter, words, time and share."""
    items = []
    for cause in shares(row):
        swatch = tag("span", CAUSES[cause].letter, class_="swatch", style=f"background:{colour(cause)}")
        items.append(tag("li", swatch, legend_words(row, cause)))
    return tag("ul", *items, class_="legend")


Rows = Sequence[tuple[str, str]]  # name and text of facts


def render_summary(report: Report) -> str:
    """Verdict, bar and findings as a fragment for a notebook cell, with scoped style."""
    fragment = tag("div", *verdict(report), step(report), _findings(report), training(report), class_="ddprof")
    return tag("style", Markup("@scope (.ddprof){" + STYLE.replace(":root", ":scope") + "}")) + fragment


def verdict(report: Report, heading: Markup | None = None) -> list[Markup]:
    """Doubts about the result, the verdict as the heading (or `heading`), and the confidence."""
    trust, label = phrases.trust_words(report), "Confidence: " if phrases.leading(report) else "Basis: "
    confidence = tag("p", tag("strong", label), trust, class_="quiet") if trust else Markup()
    doubts = [tag("p", words) for words in (phrases.before_words(report), phrases.applied_words(report)) if words]
    check_first = phrases.check_first_words(report)
    first = [tag("p", tag("strong", check_first), class_="severity critical")] if check_first else []
    return [*first, heading or tag("h1", phrases.headline(report)), *doubts, confidence]


def step(report: Report) -> Markup:
    """The step as one stacked bar with its legend."""
    job = report.ledger.job
    if not job.get("wall_us", 0.0) > 0:
        return tag("section", tag("h2", "Where the step goes"), tag("p", "Unknown: no step could be measured."))
    mean = phrases.time_words(job["wall_us"])
    words = f"The mean step, {mean}, by cause. Communication hidden under compute is free."
    bar = step_bar(job, f"The mean step of {mean} by cause")
    return tag("section", tag("h2", "Where the step goes"), tag("p", words, class_="quiet"), bar, legend(job))


def _findings(report: Report) -> Markup:
    ranked = report.ranked_findings()
    if not ranked:
        return tag("section", tag("h2", "Findings"), tag("p", phrases.nothing_found_words(report)))
    shown, rest = ranked[: phrases.MAX_FINDINGS], ranked[phrases.MAX_FINDINGS :]
    words = f"{phrases.order_words(report).capitalize()}. Gains overlap; never add them."
    cards = [card(report, finding, number) for number, finding in enumerate(ranked, 1)]
    cards, left = cards[: len(shown)], cards[len(shown) :]
    more = tag("details", tag("summary", f"{len(rest)} more"), *left) if rest else None
    return tag("section", tag("h2", "Findings"), tag("p", words, class_="quiet"), *cards, more)


def card(
    report: Report, finding: Finding, number: int, links: Markup | None = None, full: bool = True, tried: Rows = ()
) -> Markup:
    """A finding: cause, ranks, gain and fix. `number`: its position, by which a headline may cite it. `full` adds all
    fixes, patches and evidence; `tried`: rows on trials of its fixes; `links` end the card.
    """
    title = (f" {number}. {finding.summary} ", tag("code", finding.id))
    rows = finding_rows(report, finding, full, tried)
    return _card(report.severity_of(finding), title, rows, finding.fixes if full else (), links)


def finding_rows(report: Report, finding: Finding, full: bool, tried: Rows = ()) -> Rows:
    """Facts on a finding for its card; `full` and `tried` as in `card`."""
    is_checked = finding.by_ledger_us is not None and (full or phrases.prices_differ(finding))
    return [
        ("Who", phrases.who_words(finding)),
        ("Gain", phrases.gain_words(report, finding)),
        *((("Cost", cost),) if (cost := phrases.cost_words(report, finding)) else ()),
        *((("Checked", phrases.ledger_words(finding)),) if is_checked else ()),
        ("Confidence", phrases.confidence_words(finding)),
        *(("Do", phrases.fix_words(fix)) for fix in finding.fixes[: None if full else 1]),
        *tried,
        *(("Seen", phrases.evidence_words(evidence)) for evidence in finding.evidence if full),
    ]


def remark_rows(remark: Remark) -> Rows:
    """Facts on a remark on the training for its card."""
    seen = (("Seen", phrases.evidence_words(evidence)) for evidence in remark.evidence)
    return [*seen, *(("Do", phrases.fix_words(fix)) for fix in remark.fixes)]


def _card(
    severity: str, title: Sequence[str | Markup], rows: Rows, fixes: Sequence[Fix], links: Markup | None = None
) -> Markup:
    """A card of rows of facts, and of the patches of some fixes."""
    patches = [tag("pre", Markup("\n".join(map(join, fix.patch.splitlines())))) for fix in fixes if fix.patch]
    head = tag("h3", tag("span", severity, class_=f"severity {severity}"), *title)
    facts = tag("dl", *(join(tag("dt", name), tag("dd", phrases.on_page(text))) for name, text in rows))
    return tag("article", head, facts, *patches, links, class_=f"card {severity}")


def training(report: Report) -> Markup:
    """Remarks that may spoil the training and cost no time; empty without any."""
    cards = []
    for remark in report.training.remarks:
        title = (" ", phrases.remark_words(remark))
        cards.append(_card(remark.severity, title, remark_rows(remark), remark.fixes))
    return tag("section", tag("h2", phrases.TRAINING_TITLE), *cards) if cards else Markup()


def folded(head: str, items: Sequence[Markup]) -> Markup:
    """A list that opens on one click."""
    return tag("details", tag("summary", head), tag("ul", *(tag("li", item) for item in items)), class_="checked")


def limits(report: Report, check_words: Callable[[str], str] = str) -> Markup:
    """Causes not found or not judged, defects of the data. `check_words`: identifier -> what its check looks for."""
    abstained = [join(tag("code", ids), f": {reason}") for ids, reason in phrases.abstention_words(report)]
    items = [join(f"Data {severity}: {sentence}") for severity, sentence in data_notes.health_words(report)]
    if clock := data_notes.clock_words(report):
        items.append(join(clock))
    names = [tag("code", name, title=check_words(name)) for name in report.checked]
    return tag(
        "section",
        tag("h2", "Checked, not found"),
        folded(phrases.checked_count(report), names) if names else tag("p", "Nothing."),
        tag("h2", "Not judged"),
        folded(phrases.not_judged_count(report), abstained) if abstained else tag("p", "Everything was judged."),
        tag("h2", "Quality of the data"),
        tag("ul", *(tag("li", item) for item in items)) if items else tag("p", "Nothing to report."),
    )
