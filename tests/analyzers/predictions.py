"""Predictions for `KEY=VALUE` settings of a labelled run."""

from labelled_runs import Labelled

from ddprof.analyzers.settings.knobs import parse_setting
from ddprof.analyzers.settings.predict import Prediction, predict
from ddprof.analyzers.settings.present import parse_now, present


def predicted(run: Labelled, *settings: str, now: dict[str, str] | None = None) -> Prediction:
    return predict(run.pricer, [parse_setting(text) for text in settings], present(run.measures, parse_now(now or {})))
