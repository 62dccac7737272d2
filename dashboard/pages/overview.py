"""Overview: is it slow, and why? Verdict, the step as one bar, the findings, who differs, and what was not found."""

from __future__ import annotations

import statistics

import numpy as np
from dash import dcc, html
from dash.development.base_component import Component
from ddprof.dashboard.cards import exhibit_card, finding_card, step_bar
from ddprof.dashboard.exhibit import Exhibit, sheet
from ddprof.dashboard.figures.base import palette
from ddprof.dashboard.figures.grids import heatmap
from ddprof.dashboard.figures.points import step_dots
from ddprof.dashboard.view import View

from ddprof.report import phrases
from ddprof.report.model import CAUSES, Report
from ddprof.report.svg import heat_ranks
from ddprof.units import format_ranks, format_us

LEAST_SHARE_PERCENT = 0.5  # a cause below this on every rank is no column of the heatmap


def content(view: View) -> list[Component]:
    """The page."""
    report = view.session.report
    left = [*_verdict(report), _step(report), *_findings(view)]
    right = [exhibit_card(exhibit, "/", view) for exhibit in exhibits(view)]
    columns = html.Div(
        [html.Div(left, className="main-column"), html.Div(right, className="side-column")], className="columns"
    )
    return [columns, *_limits(view)]


def exhibits(view: View) -> list[Exhibit]:
    """The two small pictures."""
    return [e for e in (_dots(view), rank_causes(view)) if e is not None]


def _verdict(report: Report) -> list[Component]:
    title = html.H1(
        [html.Span(phrases.bound_word(report) + ". ", className="label"), phrases.clean(report.verdict.headline)]
    )
    trust = phrases.trust_words(report)
    return [title, html.P([html.Strong("How sure: "), trust], className="quiet") if trust else html.Div()]


def _step(report: Report) -> Component:
    job = dict(report.ledger.job)
    if not job.get("wall_us", 0.0) > 0:
        return html.P("Unknown where the step goes: no step could be measured.")
    words = f"The mean step, {format_us(job['wall_us'])}, by cause"
    best = min((w.predicted_step_us for w in report.what_if), default=None)
    target = f"; best step within reach {format_us(best)}" if best is not None and best < job["wall_us"] else ""
    return html.Section([html.H2(words + target), step_bar(job, words)])


def _findings(view: View) -> list[Component]:
    ranked = view.session.report.ranked_findings()
    if not ranked:
        return [html.H2("Findings"), html.P("None: nothing that was checked costs this job time.")]
    shown = [finding_card(view, i, f, full=False) for i, f in enumerate(ranked[: phrases.MAX_FINDINGS])]
    more = len(ranked) - len(shown)
    link = [dcc.Link(f"{more} more", href=view.link("/findings"))] if more > 0 else []
    words = "By the step time that fixing them gives back. Gains overlap; never add them."
    return [html.H2("What to do first"), html.P(words, className="quiet"), *shown, *link]


def _dots(view: View) -> Exhibit | None:
    values = [v for i, v in enumerate(view.session.report.steps.per_step_us) if view.shows_step(i)]
    if not values:
        return None
    spread = phrases.step_spread(view.session.report)
    reading = f"The median of {len(values)} steps is {format_us(statistics.median(values))}"
    reading += f", spread ±{spread * 100:.1f} %." if spread is not None else "."
    rows = [(i, v / 1e3) for i, v in enumerate(values)]
    return Exhibit(
        "steps", "Is it steady?", reading, sheet(("step", "time (ms)"), rows), step_dots(values, palette(view.dark))
    )


def rank_causes(view: View) -> Exhibit | None:
    """Ranks against causes in percent of each rank's step."""
    ledger = view.session.report.ledger.per_rank
    ranks = [r for r in heat_ranks(view.session.report) if view.shows(r)]
    values = np.array(
        [[ledger[r].get(c, 0.0) / max(ledger[r].get("wall_us", 0.0), 1e-9) * 100 for c in CAUSES] for r in ranks]
    )
    if not len(ranks):
        return None
    used = [i for i in range(len(CAUSES)) if values[:, i].max() >= LEAST_SHARE_PERCENT]
    names = [phrases.CAUSE_WORDS[c] for c in CAUSES]
    spread = values[:, used].max(axis=0) - values[:, used].min(axis=0) if used else np.zeros(0)
    reading = "One rank was traced." if len(ranks) == 1 else _difference(ranks, values, used, spread, names)
    if len(ranks) < len(ledger) and view.ranks is None:
        reading += f" Shown: the {len(ranks)} of {len(ledger)} ranks that differ most from the mean."
    figure = heatmap(values[:, used], [names[i] for i in used], [f"rank {r}" for r in ranks], palette(view.dark), "%")
    rows = [(r, *(float(v) for v in line)) for r, line in zip(ranks, values, strict=True)]
    return Exhibit(
        "rank-causes", "Which rank differs?", reading, sheet(("rank", *(f"{n} (%)" for n in names)), rows), figure
    )


def _difference(ranks: list[int], values: np.ndarray, used: list[int], spread: np.ndarray, names: list[str]) -> str:
    if not used or spread.max() < 1.0:
        return "All ranks spend their step alike, to one percent."
    cause = used[int(spread.argmax())]
    most, least = int(values[:, cause].argmax()), int(values[:, cause].argmin())
    return (
        f"{names[cause].capitalize()} differs most: {values[most, cause]:.0f} % of the step on rank {ranks[most]}, "
        f"{values[least, cause]:.0f} % on rank {ranks[least]}."
    )


def _limits(view: View) -> list[Component]:
    report = view.session.report
    judged = [html.Li([html.Code(a.id), f": {phrases.clean(a.reason)}"]) for a in report.abstentions]
    health = [html.Li(f"{severity}: {sentence}") for severity, sentence in phrases.health_words(report)]
    missing = [html.Li(f"{format_ranks(report.run.missing_ranks)}: not traced")] if report.run.missing_ranks else []
    clock = phrases.clock_words(report)
    return [
        html.Section(
            [
                html.Div([html.H2("Checked and not found"), html.P(phrases.checked_words(report) or "nothing")]),
                html.Div(
                    [html.H2("Could not be judged"), html.Ul(judged) if judged else html.P("Everything was judged.")]
                ),
                html.Div(
                    [
                        html.H2("Quality of the data"),
                        html.Ul([*missing, *health]) if missing or health else html.P("No defect found."),
                        html.P(clock, className="quiet") if clock else None,
                    ]
                ),
            ],
            className="three",
        )
    ]
