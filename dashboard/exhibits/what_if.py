"""Predictions: what do I gain? The report's predictions, and each setting of the page replayed by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from ddprof.analyzers.settings.knobs import Knob, Setting
from ddprof.analyzers.settings.predict import Prediction
from ddprof.analyzers.settings.predict import predict as replay
from ddprof.analyzers.settings.present import present
from ddprof.dashboard.exhibits.parts import try_it
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, sheet
from ddprof.dashboard.exhibits.parts.try_it import by_gain, forecast_chart, trial_sheet, tried_of
from ddprof.dashboard.figures.charts import Ranges
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.view import View
from ddprof.errors import DdprofError
from ddprof.report import phrases
from ddprof.units import format_us

ALONE_FACTOR = 2  # how many times faster, where a setting is a factor


def exhibits(view: View) -> list[Exhibit]:
    """The report's own predictions with the commands that try them, and the trials so far."""
    predicted, named = _predictions(view.opened), tried_of(view.opened)
    if not named:
        return [predicted]
    trials, names = by_gain([tried for _, tried in named]), ", ".join(dict.fromkeys(name for name, _ in named))
    reading = f"What ddprof tune measured on this run's command, in {names}; the page Tuning has more."
    question = "What was tried already?"
    return [predicted, Exhibit("what-if-tried", question, reading, trial_sheet(trials), forecast_chart(trials))]


def _predictions(opened: OpenRun) -> Exhibit:
    report = opened.report
    rows = [(w.change, w.predicted_step_us / 1e3, w.low_us / 1e3, w.high_us / 1e3) for w in report.what_if]
    question, columns = "What do the findings' fixes save?", ("change", "step after (ms)", "low (ms)", "high (ms)")
    if not rows:
        reading = "The report predicts no change that helps."
        return Exhibit("what-if", question, reading, sheet(columns, rows))
    reading = (
        f"The step is {format_us(report.steps.wall_us)} as recorded. Each bar is the step replayed after one fix; "
        "the last may combine several. Gains overlap; never add them."
    )
    chart = _ranges(report.steps.wall_us / 1e3, rows)
    return Exhibit("what-if", question, reading, sheet(columns, rows), chart, listings=try_it.of_run(opened))


def settings_alone(opened: OpenRun) -> Exhibit:
    """Every setting of the page replayed alone, for a file that cannot replay."""
    predictions = []
    for knob, setting in _each_alone(opened):
        with suppress(DdprofError):  # the run cannot be replayed, or the change is not possible in it
            predictions.append((_words(knob, setting), predict(opened, [setting]), knob.assumption))
    rows = [(words, p.after_us / 1e3, p.low_us / 1e3, p.high_us / 1e3, assumes) for words, p, assumes in predictions]
    question = "What would each change alone save?"
    table = sheet(("change", "step after (ms)", "low (ms)", "high (ms)", "assumes"), rows)
    if not rows:
        return Exhibit("what-if-alone", question, "This run could not be replayed: no prediction is possible.", table)
    before_us = opened.pricer.step_us(())
    best, prediction, _ = min(predictions, key=lambda one: one[1].after_us)
    gain_us = before_us - prediction.after_us
    reading = "None of these changes makes the step shorter."
    if gain_us > phrases.LEAST_SHARE * before_us:
        reading = (
            f"{best} saves most, {format_us(gain_us)} of each {format_us(before_us)} step. The table says what each "
            "change assumes."
        )
    return Exhibit("what-if-alone", question, reading, table, _ranges(before_us / 1e3, [row[:4] for row in rows]))


def _each_alone(opened: OpenRun) -> Iterator[tuple[Knob, Setting]]:
    """Applicable settings: as a finding suggests, a switch turned on, ALONE_FACTOR for a factor, or the first choice.
    Numbers and ranks without a suggestion are skipped.
    """
    for offer in opened.offers:
        knob = offer.knob
        if offer.lacking:
            continue
        if offer.suggested is not None:
            yield knob, offer.suggested
        elif knob.is_factor:
            yield knob, Setting(knob.key, str(ALONE_FACTOR))
        elif knob.choices or (knob.is_switch and not knob.needs_ranks):
            yield knob, Setting(knob.key, knob.choices[0] if knob.choices else knob.values)


def _ranges(now_ms: float, rows: list[tuple[str, float, float, float]]) -> Ranges:
    """The present step, and below it the predicted ones with their ranges."""
    value = [now_ms, *(row[1] for row in rows)]
    low, high = [now_ms, *(row[2] for row in rows)], [now_ms, *(row[3] for row in rows)]
    return Ranges(["as recorded", *(phrases.on_page(row[0]) for row in rows)], low, value, high, "ms per step")


def predict(opened: OpenRun, settings: Sequence[Setting]) -> Prediction:
    """All settings replayed together. Raises DdprofError where the run cannot be replayed, or not with one of them."""
    return replay(opened.pricer, settings, present(opened.measures, {}))


def _words(knob: Knob, setting: Setting) -> str:
    """The setting for readers: "No straggler", "DDP buckets: 25", "Ranks replaced (2)"."""
    value = "" if knob.is_switch else f", {setting.value}×" if knob.is_factor else f": {setting.value}"
    ranks = f" ({', '.join(map(str, setting.ranks))})" if setting.ranks else ""
    return f"{knob.words}{value}{ranks}"
