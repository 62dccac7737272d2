"""Overview: is it slow, and why? Verdict, the step as one bar, the findings, deviating ranks, passed checks."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from ddprof.dashboard.exhibits.data import check_words
from ddprof.dashboard.exhibits.overview import exhibits
from ddprof.dashboard.pages.cards import exhibit_card, finding_card, remark_cards, step_bar, whole_run
from ddprof.dashboard.runs.view import View
from ddprof.report import data_notes, phrases
from ddprof.report.model import Report
from ddprof.units import format_us


def content(view: View) -> list[Component]:
    """The page."""
    report = view.opened.report
    left = [
        *whole_run(view, "Verdict and findings"),
        *_verdict(view),
        _step(view),
        *_findings(view),
        *remark_cards(report),
    ]
    right = [exhibit_card(exhibit, "/", view) for exhibit in exhibits(view)]
    columns = html.Div(
        [html.Div(left, className="main-column"), html.Div(right, className="side-column")], className="columns"
    )
    return [columns, *_limits(view)]


def _verdict(view: View) -> list[Component]:
    report, run = view.opened.report, view.opened.argument
    trust = phrases.trust_words(report)
    word = "Confidence: " if phrases.leading(report) else "Basis: "
    paragraphs = [html.P(words) for words in (phrases.before_words(report), phrases.applied_words(report)) if words]
    check_first = phrases.check_first_words(report)
    return [
        *([html.P(html.Strong(check_first), className="severity critical")] if check_first else []),
        html.H1(phrases.headline(report)),
        *([html.P(["More: ", html.Code(f"ddprof hang {run}")])] if report.failure is not None and run else []),
        *paragraphs,
        html.P([html.Strong(word), trust], className="quiet") if trust else html.Div(),
    ]


def _step(view: View) -> Component:
    report = view.opened.report
    job = dict(report.ledger.job)
    if not job.get("wall_us", 0.0) > 0:
        return html.P("Unknown where the step goes: no step could be measured.")
    words = f"The mean step, {format_us(job['wall_us'])}, by cause"
    best = min((w.predicted_step_us for w in report.what_if), default=None)
    target = f"; best step within reach {format_us(best)}" if best is not None and best < job["wall_us"] else ""
    return html.Section([html.H2(words + target), step_bar(job, words, view)])


def _findings(view: View) -> list[Component]:
    ranked = view.opened.report.ranked_findings()
    if not ranked:
        return [html.H2("Findings"), html.P(phrases.nothing_found_words(view.opened.report))]
    shown = [finding_card(view, i, f, full=False) for i, f in enumerate(ranked[: phrases.MAX_FINDINGS])]
    more = len(ranked) - len(shown)
    link = [dcc.Link(f"{more} more", href=view.link("/findings"))] if more > 0 else []
    words = f"{phrases.order_words(view.opened.report).capitalize()}. Gains overlap; never add them."
    return [html.H2("What to do first"), html.P(words, className="quiet"), *shown, *link]


def _not_judged(reason: str, ids: list[str]) -> Component:
    """A reason, and the causes it keeps from being judged, folded where they are many."""
    names = [html.Li(html.Code(name, title=check_words(name))) for name in ids]
    if len(ids) > phrases.MAX_FINDINGS:
        folded = html.Details([html.Summary(f"{len(ids)} causes"), html.Ul(names)], className="checked")
        return html.Li([f"{reason}:", folded])
    codes = [part for name in ids for part in (html.Code(name, title=check_words(name)), ", ")][:-1]
    return html.Li([*codes, f": {reason}"])


def _checked(report: Report) -> list[Component]:
    """One line; unfolded, the identifiers that `ddprof explain` takes, each with the subject of its check."""
    if not report.checked:
        return [html.P("Nothing.")]
    names = [html.Li(html.Code(name, title=check_words(name))) for name in report.checked]
    return [html.Details([html.Summary(phrases.checked_count(report)), html.Ul(names)], className="checked")]


def _limits(view: View) -> list[Component]:
    report = view.opened.report
    judged = [_not_judged(reason, ids) for reason, ids in phrases.abstentions_by_reason(report).items()]
    health = [html.Li(f"{severity}: {sentence}") for severity, sentence in data_notes.health_words(report)]
    clock = data_notes.clock_words(report)
    return [
        html.Section(
            [
                html.Div([html.H2("Checked, not found"), *_checked(report)]),
                html.Div(
                    [
                        html.H2("Not judged"),
                        html.Details([html.Summary(phrases.not_judged_count(report)), html.Ul(judged)])
                        if judged
                        else html.P("Everything was judged."),
                    ]
                ),
                html.Div(
                    [
                        html.H2("Quality of the data"),
                        html.Ul(health) if health else html.P("No defect found."),
                        html.P(clock, className="quiet") if clock else None,
                    ]
                ),
            ],
            className="three",
        )
    ]
