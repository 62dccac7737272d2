"""Overview: is it slow, and why? Verdict, the step as one bar, the findings, who differs, and what was not found."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

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
from ddprof.report.deviation import Deviation, deviation
from ddprof.report.model import CAUSES, Report
from ddprof.report.svg import NAMED_MARK
from ddprof.units import format_ranks, format_us


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
    title, trust = html.H1(phrases.headline(report)), phrases.trust_words(report)
    word = "How sure: " if phrases.leading(report) else "Basis: "
    return [title, html.P([html.Strong(word), trust], className="quiet") if trust else html.Div()]


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
    rows = [(i, v / 1e3) for i, v in enumerate(values)]
    table = sheet(("step", "time (ms)"), rows)
    if len(values) == 1:
        reading = f"One step was seen, {format_us(values[0])}: nothing can be said of its spread."
        return Exhibit("steps", "Is it steady?", reading, table, None)
    spread = phrases.step_spread(view.session.report)
    reading = f"The median of {len(values)} steps is {format_us(statistics.median(values))}"
    reading += f", spread ±{spread * 100:.1f} %." if spread is not None else "."
    return Exhibit("steps", "Is it steady?", reading, table, step_dots(values, palette(view.dark)))


def rank_causes(view: View) -> Exhibit | None:
    """Ranks against causes in percent of each rank's step, coloured by the distance to the median rank."""
    found = deviation(view.session.report, shows=view.shows)
    if found is None:
        return None
    heads = [phrases.CAUSE_WORDS[c] for c in found.causes]
    names = [f"rank {r}" + (NAMED_MARK if r in found.named else "") for r in found.ranks]
    figure = heatmap(
        np.array(found.percent),
        heads,
        names,
        palette(view.dark),
        "%",
        diverging=True,
        shade=np.array(found.points),
        full_shade=found.scale_points,
    )
    rows = [(r, *_percent(row)) for r, row in sorted(view.session.report.ledger.per_rank.items()) if view.shows(r)]
    table = sheet(("rank", *(f"{phrases.CAUSE_WORDS[c]} (%)" for c in CAUSES)), rows)
    return Exhibit("rank-causes", "Which rank differs?", _difference(found, heads), table, figure)


def _percent(row: Mapping[str, float]) -> list[float]:
    return [row.get(c, 0.0) / max(row.get("wall_us", 0.0), 1e-9) * 100 for c in CAUSES]


def _difference(found: Deviation, heads: list[str]) -> str:
    if found.of == 1:
        return "One rank was traced."
    points, percent = np.array(found.points), np.array(found.percent)
    line, column = np.unravel_index(int(np.abs(points).argmax()), points.shape)
    if abs(points[line, column]) < 1.0:
        return "All ranks spend their step alike, to one percent."
    typical = percent[line, column] - points[line, column]
    words = (
        f"Percent of the step. Farthest off: {heads[int(column)]} on rank {found.ranks[int(line)]}, "
        f"{percent[line, column]:.0f} % against {typical:.0f} % on the median rank."
    )
    if len(found.ranks) < found.of:
        words += f" Shown: the {len(found.ranks)} of {found.of} ranks that differ most."
    return words + (f"{NAMED_MARK} is named by a finding." if found.named & set(found.ranks) else "")


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
