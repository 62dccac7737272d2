"""What-if: what do I gain? Settings that replay the recorded run, all at once, while they are moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from ddprof.analyzers.planning.facts import present
from ddprof.analyzers.planning.knobs import Setting
from ddprof.analyzers.planning.predict import Prediction
from ddprof.analyzers.planning.predict import predict as replay
from ddprof.analyzers.replay.price import LOW_CONFIDENCE_ERROR
from ddprof.dashboard.exhibits.parts.exhibit import sheet
from ddprof.dashboard.exhibits.what_if import CONTROLS, exhibits
from ddprof.dashboard.figures.plotly.bars import waterfall
from ddprof.dashboard.figures.plotly.base import palette
from ddprof.dashboard.pages.cards import aria, exhibit_card, notice, table, whole_run
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.errors import DdprofError
from ddprof.report.calibration import like
from ddprof.report.phrases import calibration_words
from ddprof.units import format_share, format_us

SLIDER_STEP = 0.25  # times faster; 1 is as recorded


def content(view: View) -> list[Component]:
    """The page."""
    head = [html.H1("What if?"), *whole_run(view, "The replay")]
    stored = [exhibit_card(e, "/what-if", view) for e in exhibits(view)]
    if not view.opened.has_traces:
        return [*head, notice("A saved report cannot be replayed: these are the predictions it holds."), *stored]
    controls = html.Div(id="what-if-controls", className="controls", role="group", **aria(label="What to change"))
    outcome = html.Div(id="what-if-result", **aria(live="polite"))
    return [
        *head,
        *_warning(view.opened),
        dcc.Store(id="what-if-config", data=controls_of(view.query)),
        dcc.Store(id="what-if-values", data=settings(view.query)),
        html.Div(id="what-if-mounted", hidden=True),
        html.Div([controls, html.Div([outcome, *stored])], className="columns what-if"),
    ]


def _warning(opened: OpenRun) -> list[Component]:
    error = opened.pricer.error
    if error is None:
        return [notice("This run could not be replayed: predictions are not possible.", "error")]
    if error > LOW_CONFIDENCE_ERROR:
        return [
            notice(
                f"Replaying the unmodified run misses the measured step by {format_share(error)}: "
                "predictions are uncertain.",
                "error",
            )
        ]
    return []


def controls_of(query: Mapping[str, str]) -> list[dict[str, Any]]:
    """What assets/dashboard/what_if.js builds inputs from. Values come from the address: a link shows the same."""
    values = settings(query)
    return [
        {
            "key": knob.key,
            "words": knob.words,
            "assumption": knob.assumption,
            "is_switch": knob.is_switch,
            "value": values[knob.key],
            "most": knob.most,
            "step": SLIDER_STEP,
        }
        for knob in CONTROLS
    ]


def settings(query: Mapping[str, Any]) -> dict[str, float]:
    """Values of all controls: 0 or 1 for a switch, times faster for the others; as recorded where nonsense is asked."""
    values = {}
    for knob in CONTROLS:
        neutral = 0.0 if knob.is_switch else 1.0
        try:
            value = float(query.get(knob.key, neutral))
        except (TypeError, ValueError):
            value = neutral
        high = 1.0 if knob.is_switch else knob.most
        values[knob.key] = min(max(value, neutral), high) if value == value else neutral
    return values


def predict(opened: OpenRun, values: Mapping[str, float]) -> Prediction:
    """All changed controls replayed together. Raises NoUsableInput where the run cannot be replayed."""
    changed = [
        Setting(knob.key, knob.values if knob.is_switch else f"{values[knob.key]:g}")
        for knob in CONTROLS
        if values.get(knob.key, 1.0) != (0.0 if knob.is_switch else 1.0)
    ]
    return replay(opened.pricer, changed, present(opened.measures, {}))


def outcome(view: View, values: Mapping[str, Any]) -> list[Component]:
    """The prediction for some values, or one line that says why there is none."""
    try:
        return result(view, predict(view.opened, settings(values)))
    except DdprofError as error:
        return [notice(str(error), "error")]


def result(view: View, found: Prediction) -> list[Component]:
    """The prediction as a sentence with its range, and a waterfall."""
    before, after = found.before_us, found.after_us
    if not found.levels:
        words = f"The step takes {format_us(before)} as recorded. Change something: the run is replayed with it."
        return [html.H2(words, className="prediction")]
    ratio = f", {before / after:.2f}× the speed" if after > 0 else ""
    share, word = format_share(abs(found.gain_us) / before if before else 0.0), "less" if found.gain_us >= 0 else "more"
    reading = (
        f"{format_us(before)} → {format_us(after)} per step: {format_us(abs(found.gain_us))} ({share}) {word}{ratio}."
    )
    words_of = {knob.key: knob.words for knob in CONTROLS}
    names = [f"{words_of[level.key]}{_times(level.words)}" for level in found.levels]
    levels = [("as recorded", before), *zip(names, (level.step_us for level in found.levels), strict=True)]
    figure = waterfall([w for w, _ in levels], [us / 1e3 for _, us in levels], palette(view.dark), "ms per step")
    graph = dcc.Graph(
        figure=figure, config={"displayModeBar": False}, id="what-if-figure", style={"height": figure.layout.height}
    )
    numbers = table(sheet(("change", "step (ms)"), [(w, us / 1e3) for w, us in levels]))
    return [
        html.H2(reading, className="prediction"),
        html.P(f"{_range_words(view.opened, found)}.", className="reading"),
        graph,
        html.Details([html.Summary("Numbers"), numbers]),
    ]


def _range_words(opened: OpenRun, found: Prediction) -> str:
    """The range, and how often earlier predictions of these kinds fell inside theirs."""
    known = like(opened.records, (), [change.kind for change in found.changes])
    return f"Range of the step after: {format_us(found.low_us)} to {format_us(found.high_us)}{calibration_words(known)}"


def _times(words: str) -> str:
    """ " 2×" for "bandwidth = 2"; nothing for a switch."""
    value = words.rpartition("= ")[2]
    return f" {value}×" if value.replace(".", "", 1).isdigit() else ""
