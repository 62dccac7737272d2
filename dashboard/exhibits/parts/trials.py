"""Trials of `ddprof tune` as rows and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ddprof.dashboard.exhibits.parts.exhibit import Sheet, sheet
from ddprof.dashboard.figures.charts import Amount, Forecasts
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.findings import Finding
from ddprof.trials.answer import KEPT, MeasuredGain, Tried
from ddprof.trials.model import Predicted
from ddprof.trials.phrases import measured_words
from ddprof.untrusted.plain_text import clean

_COLUMNS = (
    *("settings", "finding", "what came of it", "predicted gain (%)", "low (%)", "high (%)"),
    *("measured gain (%)", "low (%)", "high (%)", "pairs of runs"),
)


def settings_words(tried: Tried) -> str:
    """The tried settings, and those below them, in words."""
    beside = f" (beside {' + '.join(tried.beside)})" if tried.beside else ""
    return clean(" + ".join(tried.settings) + beside)


def short_names(rows: Sequence[Tried]) -> list[str]:
    """Short names for a picture: the first setting of each fix, or all of it where names collide."""
    names = [" + ".join(map(_first, tried.settings)) + (", added" if tried.beside else "") for tried in rows]
    return [clean(n) if names.count(n) == 1 else settings_words(t) for n, t in zip(names, rows, strict=True)]


def _first(words: str) -> str:
    return words.partition(" at ")[0].partition(", ")[0]


def forecast_chart(rows: Sequence[Tried]) -> Forecasts | None:
    """Predicted against measured gains of the timed trials; None without any."""
    timed = [tried for tried in rows if tried.measured is not None]
    if not timed:
        return None
    predicted, measured = ([_estimate(getattr(t, kind)) for t in timed] for kind in ("predicted", "measured"))
    return Forecasts(short_names(timed), predicted, measured, "% of the step saved")


def _estimate(gain: Predicted | MeasuredGain | None) -> Amount | None:
    if gain is None:
        return None
    low, high = (None if end is None else 100 * end for end in (gain.low, gain.high))
    return Amount(100 * gain.share, low, high)


def by_gain(rows: Sequence[Tried]) -> list[Tried]:
    """Trials sorted: kept ones first, then by measured gain; untimed ones last."""
    return sorted(rows, key=lambda t: (t.state != KEPT, -(t.measured.share if t.measured is not None else -math.inf)))


def tried_of(opened: OpenRun) -> list[tuple[str, Tried]]:
    """All trials of the run's command, the latest tuning first, with the tuning's name."""
    answers = [(clean(tuning.name), tuning.document.result) for tuning in opened.tunings]
    return [(name, tried) for name, answer in answers if answer is not None for tried in answer.tried]


def words_of(opened: OpenRun, finding: Finding) -> Iterator[str]:
    """A sentence for each trial of a fix of this finding."""
    for name, tried in tried_of(opened):
        if tried.finding == finding.id:
            phrases_ = [measured_words(tried.measured, tried.predicted)] if tried.measured is not None else []
            phrases_.append(f"{tried.state}{f' ({clean(tried.why)})' if tried.why else ''}")
            yield f"{settings_words(tried)}: {'; '.join(phrases_)} [{name}]"


def trial_sheet(rows: list[Tried]) -> Sheet:
    """Predicted against measured, in percent of the step."""
    return sheet(_COLUMNS, map(_row, rows))


def _row(tried: Tried) -> tuple[object, ...]:
    predicted, measured = tried.predicted, tried.measured
    foretold = (None,) * 3 if predicted is None else (predicted.share, predicted.low, predicted.high)
    gained = (None,) * 3 if measured is None else (measured.share, measured.low, measured.high)
    shares = [None if share is None else share * 100 for share in (*foretold, *gained)]
    pairs = None if measured is None else measured.pairs
    return (settings_words(tried), clean(tried.finding) or "several", tried.state, *shares, pairs)
