"""Predictions for settings of a labelled run."""

from __future__ import annotations

from labelled_runs import Labelled

from ddprof.analyzers.planning.facts import parse_now, present
from ddprof.analyzers.planning.knobs import parse_setting
from ddprof.analyzers.planning.predict import Prediction, predict


def predicted(run: Labelled, *settings: str, now: dict[str, str] | None = None) -> Prediction:
    """The prediction for `KEY=VALUE` settings of a labelled run."""
    stated = present(run.measures, parse_now(now or {}))
    return predict(run.pricer, [parse_setting(text) for text in settings], stated)
