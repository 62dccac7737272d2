"""Predictions: what do I gain? Settings that replay the recorded run together, while they are moved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from ddprof.analyzers.replay.price import LOW_CONFIDENCE_ERROR
from ddprof.analyzers.settings.knobs import BY_KEY, Setting, parse_setting
from ddprof.analyzers.settings.predict import Level, Offer, Prediction, text_of
from ddprof.analyzers.settings.present import present
from ddprof.dashboard.exhibits.parts import try_it
from ddprof.dashboard.exhibits.parts.exhibit import sheet
from ddprof.dashboard.exhibits.what_if import exhibits, predict
from ddprof.dashboard.figures.charts import Waterfall
from ddprof.dashboard.pages.cards import aria, exhibit_card, listing, notice, picture, table, whole_run
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.errors import DdprofError, UsageError
from ddprof.report import phrases
from ddprof.report.calibration import like
from ddprof.report.phrases import calibration_words, on_page
from ddprof.units import format_share, format_unprofiled, format_us

SLIDER_STEP = 0.25  # times faster; 1 is as recorded
MAX_VALUE = 1_000  # characters of one setting: some hundred ranks


def content(view: View) -> list[Component]:
    """The page."""
    head = [html.H1("What if?"), *whole_run(view, "The replay")]
    stored = [exhibit_card(e, "/what-if", view) for e in exhibits(view)]
    if not view.opened.has_traces:
        return [*head, notice("A saved report cannot be replayed: these are the predictions it holds."), *stored]
    if view.opened.pricer.error is None:
        return [*head, *_warning(view.opened), *stored]
    controls = html.Div(id="what-if-controls", className="controls", role="group", **aria(label="What to change"))
    outcome = html.Div(id="what-if-result", **aria(live="polite"))
    left = html.Div([controls, _left_out(view.opened.offers)])
    return [
        *head,
        *_warning(view.opened),
        dcc.Store(id="what-if-config", data=controls_of(view)),
        dcc.Store(id="what-if-values", data=values_of(view)),
        html.Div(id="what-if-mounted", hidden=True),
        html.Div([left, html.Div([outcome, *stored])], className="columns what-if"),
    ]


def _left_out(offers: Sequence[Offer]) -> Component | None:
    """Settings without a control, folded, each with its reason."""
    rows = [(offer.knob, offer.lacking) for offer in offers if offer.lacking]
    if not rows:
        return None
    listed = [html.Li([html.Strong(knob.words), f": {phrases.clean(why)}"]) for knob, why in rows]
    words = f"{len(rows)} setting{'s' if len(rows) > 1 else ''} that do{'' if len(rows) > 1 else 'es'} not apply"
    return html.Details([html.Summary(words), html.Ul(listed)], className="no-print left-out")


def _warning(opened: OpenRun) -> list[Component]:
    error = opened.pricer.error
    if error is None:
        return [notice("This run could not be replayed: predictions are not possible.", "error")]
    misses = f"Replaying the unmodified run misses the measured step by {format_share(error)}"
    return [notice(f"{misses}: predictions are uncertain.", "error")] if error > LOW_CONFIDENCE_ERROR else []


def values_of(view: View) -> dict[str, str]:
    """Requested settings in the address, as text, by key."""
    return {key: text[:MAX_VALUE] for key, text in view.query.items() if key in BY_KEY}


def controls_of(view: View) -> list[dict[str, Any]]:
    """Input controls for assets/dashboard/what_if.js, suggestions of findings first. Values come from the address, so
    that a link shows the same.
    """
    opened = view.opened
    values = {setting.key: setting for setting in wanted_settings(opened, values_of(view))[0]}
    shown = [_control(offer, values.get(offer.knob.key)) for offer in opened.offers if not offer.lacking]
    return sorted(shown, key=lambda control: (control["because"] is None, control["because"] or 0))


def _control(offer: Offer, value: Setting | None) -> dict[str, Any]:
    knob, suggested = offer.knob, offer.suggested
    by_ranks = "needed" if knob.needs_ranks else "possible" if knob.for_ranks else ""
    return {
        "key": knob.key,
        "words": knob.words,
        "assumption": knob.assumption,
        "kind": "switch" if knob.is_switch else "factor" if knob.is_factor else "choice" if knob.choices else "number",
        "on": knob.values,  # of a switch
        "unit": knob.values.partition("(")[2].rstrip(")") if "(" in knob.values else "",  # of a number
        "choices": knob.choices,
        "most": knob.most,
        "step": SLIDER_STEP,
        "ranks": by_ranks,
        "value": _value(value),
        "current": offer.current,
        "suggested": _value(suggested),
        "because": None if offer.because is None else offer.because + 1,  # as findings are numbered on the pages
    }


def _value(setting: Setting | None) -> str:
    """The value of a setting as text: "8", "replaced@3"; "" without a setting."""
    return "" if setting is None else text_of(setting).partition("=")[2]


def outcome(view: View, values: Mapping[str, Any]) -> list[Component]:
    """The prediction for some values with its commands, or one line on why there is none."""
    try:
        settings, refused = wanted_settings(view.opened, values)
        together = result(view, predict(view.opened, settings))
        commands = try_it.of_settings(view.opened, settings) if settings else ()
        shown = [*(notice(phrases.clean(why), "error") for why in refused), *together, *map(listing, commands)]
        if settings and not view.opened.argument:
            words = "No single path names this run, so there is no command that replays it."
            shown.append(html.P(words, className="quiet"))
        return shown
    except DdprofError as error:
        return [notice(str(error), "error")]


def result(view: View, prediction: Prediction) -> list[Component]:
    """The prediction as a sentence with its range and how often such ranges held, and a waterfall."""
    before, after = prediction.before_us, prediction.after_us
    if not prediction.levels:
        words = f"The step takes {format_us(before)} as recorded. Change a setting to replay the run with it."
        return [html.H2(words, className="prediction")]
    ratio = f", {before / after:.2f}× the speed" if after > 0 else ""
    share = format_share(abs(prediction.gain_us) / before if before else 0.0)
    word = "less" if prediction.gain_us >= 0 else "more"
    gain = format_us(abs(prediction.gain_us))
    reading = f"{format_us(before)} → {format_us(after)} per step: {gain} ({share}) {word}{ratio}."
    names = [_level_words(level) for level in prediction.levels]
    levels = [("as recorded", before), *zip(names, (level.step_us for level in prediction.levels), strict=True)]
    chart = Waterfall([w for w, _ in levels], [us / 1e3 for _, us in levels], "ms per step")
    numbers = table(sheet(("change", "step (ms)"), [(w, us / 1e3) for w, us in levels]))
    past = calibration_words(like(view.opened.records, (), [change.kind for change in prediction.changes]))
    bare = f"; {on_page(format_unprofiled(*prediction.unprofiled_us))}" if prediction.unprofiled_us else ""
    bounds = f"Range of the step after: {format_us(prediction.low_us)} to {format_us(prediction.high_us)}{bare}{past}."
    return [
        html.H2(reading, className="prediction"),
        html.P(bounds, className="reading"),
        picture(chart, "what-if-figure", view, reading),
        html.Details([html.Summary("Numbers"), numbers]),
    ]


def _level_words(level: Level) -> str:
    """Label of a control's value: "Network faster 2×", "DDP buckets 25", "Ranks replaced @ 3"."""
    knob, value = BY_KEY[level.key], level.words.partition(" = ")[2]
    if knob.is_switch:
        value = value.removeprefix(knob.values).strip()
    elif knob.is_factor:
        factor, at, ranks = value.partition(" @ ")
        value = f"{factor}×{at}{ranks}"
    return f"{knob.words} {value}".strip()


def wanted_settings(opened: OpenRun, query: Mapping[str, Any]) -> tuple[list[Setting], list[str]]:
    """The settings of a query that make sense for the run, in the order of the controls, and why others cannot be;
    everything else in the query is ignored.
    """
    settings: list[Setting] = []
    refused: list[str] = []
    for offer in opened.offers:
        text = str(query.get(offer.knob.key) or "").strip()
        if not text:
            continue
        try:
            settings.append(_checked(opened, offer, text))
        except UsageError as error:
            refused.append(str(error))
    return settings, refused


def _checked(opened: OpenRun, offer: Offer, text: str) -> Setting:
    knob = offer.knob
    if offer.lacking:
        raise UsageError(f"{knob.key}: {offer.lacking}")
    setting = parse_setting(f"{knob.key}={text}")
    if knob.is_factor:
        setting = Setting(knob.key, _within(setting.value, knob.most), setting.ranks)
    knob.changes(setting, opened.measures, present(opened.measures, {}))
    return setting


def _within(text: str, most: float) -> str:
    """A factor within its control's range; 1, as recorded, for anything that is not a number."""
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    return f"{min(max(factor, 1.0), most):g}" if factor == factor else "1"
