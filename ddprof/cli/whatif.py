"""`ddprof whatif`: the step time under other settings, predicted by replay."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ddprof.cli.load import load_run, pairs, tell
from ddprof.cli.output import text_or_json
from ddprof.cli.reading import Reading, reading_options
from ddprof.errors import UsageError
from ddprof.report import calibration
from ddprof.report.model import Calibration
from ddprof.report.phrases import calibration_words

if TYPE_CHECKING:
    from ddprof.analyzers.bottleneck import Bottleneck
    from ddprof.analyzers.settings.predict import Prediction

SCHEMA = "ddprof.whatif/1"
now_option = click.option(
    "--now",
    "now",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting that the run had but did not record: num_workers=2. Repeatable.",
)


@click.command("whatif")
@click.argument("run", required=False)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE[@RANKS]", help="What to change. Repeatable.")
@now_option
@click.option("--list", "listed", is_flag=True, help="List the settings, their values and what each one assumes.")
@text_or_json
@reading_options
def command(
    run: str | None, settings: tuple[str, ...], now: tuple[str, ...], listed: bool, form: str, reading: Reading
) -> None:
    """Predict the step of RUN with settings changed, and what limits it then.

    \b
    ddprof whatif ddprof-runs/latest --set num_workers=4
    ddprof whatif traces/ --set bandwidth=2 --set compute=1.3@5
    ddprof whatif --list

    All settings are replayed together; gains overlap and are never added.
    """
    from ddprof.analyzers.bottleneck import bottleneck, prediction_text
    from ddprof.analyzers.settings.knobs import parse_setting
    from ddprof.analyzers.settings.predict import predict
    from ddprof.analyzers.settings.present import parse_now, present

    if listed:
        click.echo(_table())
        return
    if run is None or not settings:
        raise UsageError("whatif: want a RUN and at least one --set KEY=VALUE (`ddprof whatif --list` shows them)")
    wanted = [parse_setting(text) for text in settings]
    stated = parse_now(pairs("--now", now))
    loaded = load_run(run, reading)
    prediction = predict(loaded.pricer, wanted, present(loaded.measures, stated))
    then = bottleneck(loaded.pricer, prediction.changes)
    calibrated = calibration.like(
        calibration.on_this_machine([run]), (), [change.kind for change in prediction.changes]
    )
    if form == "json":
        document = {**to_json(loaded.label, prediction, then), "like_this": asdict(calibrated)}
        click.echo(json.dumps(document, indent=1, allow_nan=False))
    else:
        tell("\n".join([*prediction_text(prediction, then), *so_far(calibrated)]))


def to_json(label: str, prediction: Prediction, then: Bottleneck) -> dict[str, Any]:
    """The JSON-ready document (schema "ddprof.whatif/1"); times in microseconds."""
    return {
        "schema": SCHEMA,
        "run": label,
        "step_us": round(prediction.before_us, 3),
        "predicted_step_us": round(prediction.after_us, 3),
        "low_us": round(prediction.low_us, 3),
        "high_us": round(prediction.high_us, 3),
        "untraced_us": prediction.unprofiled_us,
        "replay_error": prediction.replay_error,
        "uncertain": prediction.is_uncertain,
        "levels": [
            {"change": level.words, "assumption": level.assumption, "step_us": round(level.step_us, 3)}
            for level in prediction.levels
        ],
        "bottleneck": {"id": then.id, "text": then.words, "ranks": list(then.ranks), "gain_us": then.gain_us},
    }


def so_far(calibrated: Calibration) -> list[str]:
    """One line per kind of change on how earlier predictions fared; none where none was verified."""
    words = calibration_words(calibrated).removeprefix("; ")
    return [f"so far: {words}"] if words else []


def _table() -> str:
    from ddprof.analyzers.settings.knobs import KNOBS

    rows: Sequence[str] = [f"{knob.key:<23}{knob.values:<28}{knob.assumption}" for knob in KNOBS]
    return "\n".join([f"{'setting':<23}{'values':<28}what is assumed", *rows])
