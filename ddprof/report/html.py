"""What a report alone holds as one self-contained HTML page; every name from a trace escaped.

The file with all pages of the dashboard is made by dashboard/onefile/ of the same pieces.
"""

from __future__ import annotations

from ddprof.findings import Finding
from ddprof.report import phrases
from ddprof.report.contract import to_contract
from ddprof.report.deviation import MAX_RANKS
from ddprof.report.html_page import embedded, page
from ddprof.report.html_tables import efficiency_table, ledger_table, what_if_table
from ddprof.report.markup import Markup, join, tag
from ddprof.report.model import Report
from ddprof.report.style import STYLE
from ddprof.report.svg import NAMED_MARK, heatmap, legend, step_bar, step_dots


def render_html(report: Report) -> str:
    """The whole page, with the report's JSON document inside (button "Save JSON")."""
    title = f"ddprof: {report.run.name or 'report'}"
    return page(title, phrases.run_words(report), _sections(report), embedded(to_contract(report)))


def render_summary(report: Report) -> str:
    """Verdict, bar and findings as a fragment for a notebook cell; its style is scoped to the fragment."""
    fragment = tag("div", *verdict(report), step(report), _findings(report), class_="ddprof")
    return tag("style", Markup("@scope (.ddprof){" + STYLE.replace(":root", ":scope") + "}")) + fragment


def _sections(report: Report) -> list[Markup]:
    return [
        *verdict(report),
        step(report),
        _findings(report),
        _pictures(report),
        _what_if(report),
        _efficiency(report),
        limits(report),
        _numbers(report),
    ]


def verdict(report: Report) -> list[Markup]:
    """The verdict as the heading, and how sure it is."""
    trust = phrases.trust_words(report)
    confidence = (
        tag("p", tag("strong", "How sure: " if phrases.leading(report) else "Basis: "), trust, class_="quiet")
        if trust
        else Markup()
    )
    return [tag("h1", phrases.headline(report)), confidence]


def step(report: Report) -> Markup:
    """The step as one stacked bar with its legend."""
    job = report.ledger.job
    if not job.get("wall_us", 0.0) > 0:
        return tag("section", tag("h2", "Where the step goes"), tag("p", "Unknown: no step could be measured."))
    words = (
        f"The mean step, {phrases.time_words(job['wall_us'])}, by cause. Communication hidden under compute is free."
    )
    bar = step_bar(job, f"The mean step of {phrases.time_words(job['wall_us'])} by cause")
    return tag("section", tag("h2", "Where the step goes"), tag("p", words, class_="quiet"), bar, legend(job))


def _findings(report: Report) -> Markup:
    ranked = report.ranked_findings()
    if not ranked:
        return tag("section", tag("h2", "Findings"), tag("p", "None: nothing that was checked costs this job time."))
    shown, rest = ranked[: phrases.MAX_FINDINGS], ranked[phrases.MAX_FINDINGS :]
    more = None
    if rest:
        more = tag("details", tag("summary", f"{len(rest)} more"), *(card(report, f) for f in rest))
    words = "By the step time that fixing them gives back. Gains overlap: they are not to be added."
    cards = [card(report, finding) for finding in shown]
    return tag("section", tag("h2", "Findings"), tag("p", words, class_="quiet"), *cards, more)


def card(report: Report, finding: Finding, links: Markup | None = None, full: bool = True) -> Markup:
    """A finding: what, who, gain, what to do. `full` adds all fixes, patches and evidence; `links` end the card."""
    severity = report.severity_of(finding)
    sure = f"{phrases.confidence_word(finding.confidence)}, {finding.confidence:.0%}"
    rows = [
        ("Who", phrases.who_words(finding)),
        ("Gain", phrases.gain_words(report, finding)),
        ("How sure", sure),
        *(("Do", phrases.fix_words(fix)) for fix in finding.fixes[: None if full else 1]),
        *(("Seen", phrases.evidence_words(evidence)) for evidence in finding.evidence if full),
    ]
    patches = [
        tag("pre", Markup("\n".join(join(line) for line in fix.patch.splitlines())))
        for fix in finding.fixes
        if full and fix.patch
    ]
    title = tag(
        "h3", tag("span", severity, class_=f"severity {severity}"), " ", finding.summary, " ", tag("code", finding.id)
    )
    facts = tag("dl", *(join(tag("dt", name), tag("dd", text)) for name, text in rows))
    return tag("article", title, facts, *patches, links, class_=f"card {severity}")


def _pictures(report: Report) -> Markup:
    dots, heat = step_dots(report.steps.per_step_us), heatmap(report)
    blocks = []
    if dots:
        blocks.append(tag("div", tag("h2", "Is it steady?"), tag("p", "Each dot is a step.", class_="quiet"), dots))
    if heat:
        words = "Percent of each rank's step, by cause (letters as above); coloured: more or less than the median rank."
        if len(report.ledger.per_rank) > MAX_RANKS:
            words += f" The {MAX_RANKS} of {len(report.ledger.per_rank)} ranks that differ most."
        if any(f.ranks for f in report.findings):
            words += f"{NAMED_MARK}: named by a finding."
        blocks.append(tag("div", tag("h2", "Who differs?"), tag("p", words, class_="quiet"), heat))
    return tag("section", *blocks, class_="two") if blocks else Markup()


def _what_if(report: Report) -> Markup:
    table = what_if_table(report)
    if table is None:
        return Markup()
    error = report.replay.error
    checked = "" if error is None else f" Replaying the unmodified run misses the measured step by {error:.1%}."
    words = f"Step time after a change, by replaying the run's own dependencies.{checked}"
    return tag("section", tag("h2", "What if"), tag("p", words, class_="quiet"), table)


def _efficiency(report: Report) -> Markup:
    table = efficiency_table(report)
    return tag("section", tag("h2", "Efficiency"), table) if table else Markup()


def limits(report: Report) -> Markup:
    """What was checked and not found, what could not be judged, and the quality of the data."""
    items = [join("Not judged: ", tag("code", ids), f", {reason}") for ids, reason in phrases.abstention_words(report)]
    items += [join(f"Data {severity}: {sentence}") for severity, sentence in phrases.health_words(report)]
    if clock := phrases.clock_words(report):
        items.append(join(clock))
    checked = phrases.checked_words(report) or "nothing"
    return tag(
        "section",
        tag("h2", "What was checked and not found"),
        tag("p", checked),
        tag("h2", "What could not be judged, and the quality of the data"),
        tag("ul", *(tag("li", item) for item in items)) if items else tag("p", "Nothing to report."),
    )


def _numbers(report: Report) -> Markup:
    table = ledger_table(report)
    if table is None:
        return Markup()
    return tag("section", tag("details", tag("summary", "The ledger in numbers"), table))
