"""A comparison as one self-contained HTML file."""

from __future__ import annotations

from ddprof.causes import CAUSES
from ddprof.report import phrases
from ddprof.report.comparison.compare import Comparison, to_json
from ddprof.report.comparison.text import comparison_headline, row_words
from ddprof.report.html.markup import Markup, join, table, tag
from ddprof.report.html.page import embedded, page
from ddprof.report.html.svg import legend, step_bar
from ddprof.report.model import Report


def render_html(comparison: Comparison) -> str:
    """The whole page, with the comparison's JSON document inside."""
    names = f"{comparison.before.run.name or 'before'} against {comparison.after.run.name or 'after'}"
    body = [
        tag("h1", comparison_headline(comparison)),
        *(tag("p", tag("strong", "Not comparable as they stand: "), text) for text in comparison.differences),
        tag(
            "section",
            tag("h2", "Where the step goes"),
            _bar("Before", comparison.before),
            _bar("After", comparison.after),
        ),
        tag("section", tag("h2", "What changed"), _table(comparison)),
        _findings(comparison),
    ]
    return page(f"ddprof: {names}", names, body, embedded(to_json(comparison)))


def _bar(label: str, report: Report) -> Markup:
    words = f"{label}: {phrases.run_words(report)}"
    return join(tag("p", words), step_bar(report.ledger.job, words), legend(report.ledger.job))


def _table(comparison: Comparison) -> Markup:
    rows = [("step", comparison.step), *((CAUSES[d.name].label, d) for d in comparison.causes)]
    heads = ["per step", "before", "after", "change", "95 % interval", ""]
    return table(heads, [(name, *row_words(d)) for name, d in rows])


def _findings(comparison: Comparison) -> Markup:
    items = [join("Gone: ", f.summary, " ", tag("code", f.id)) for f in comparison.gone]
    items += [join("New: ", f.summary, " ", tag("code", f.id), f", {phrases.who_words(f)}") for f in comparison.new]
    items += [join("Note: ", text) for text in comparison.notes]
    return tag("section", tag("ul", *(tag("li", item) for item in items))) if items else Markup()
