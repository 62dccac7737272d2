"""Commands to copy that try a fix on the job itself, made from the command that started the run."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterator, Sequence

from ddprof.analyzers.settings.knobs import Setting
from ddprof.analyzers.settings.predict import applied_as, text_of
from ddprof.dashboard.exhibits.parts.exhibit import Listing, Sheet, sheet
from ddprof.dashboard.figures.charts import Amount, Forecasts
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.findings import Finding
from ddprof.report.fixes import FILE_NAME, applicable
from ddprof.settings.wanted import WantedFix, changes_numbers, parse_set, shown
from ddprof.trials.document import KEPT, MeasuredGain, Predicted, Tried
from ddprof.trials.phrases import measured_words
from ddprof.untrusted.plain_text import clean


def of_finding(opened: OpenRun, finding: Finding) -> tuple[Listing, ...]:
    """Commands for the fixes of one finding: a measured trial, and a run with them applied."""
    fixes = [fix for fix, of, _ in applicable(opened.report) if of is finding]
    if not fixes:
        return ()
    names = dict.fromkeys(next(iter(fix.values)) for fix in fixes)
    stated = [f"{name}={shown(value)}{f'@{fix.at}' if fix.at else ''}" for fix in fixes for name, value in _set(fix)]
    tune = ["ddprof", "tune", *_each("--only", names), *_allowed(fixes)]
    run = ["ddprof", "run", *_each("--set", stated), *_allowed(fixes)]
    return _listings(
        opened,
        ("Try it: run beside the job as it is, in pairs of short runs", tune),
        ("Or one run with it applied, the script unedited", run),
    )


def of_run(opened: OpenRun) -> tuple[Listing, ...]:
    """Commands for all fixes of a run together; none where no fix can be applied."""
    fixes = [fix for fix, _, _ in applicable(opened.report)]
    if not fixes:
        return ()
    stated = os.path.join(opened.run_folder, FILE_NAME)
    offers = [("Try them: each alone, then together, beside the job as it is", ["ddprof", "tune", *_allowed(fixes)])]
    if opened.run_folder and os.path.isfile(stated):
        run = ["ddprof", "run", "--apply", _seen_from_there(opened, stated), *_allowed(fixes)]
        offers.append(("Or one run with all of them applied, the script unedited", run))
    return _listings(opened, *offers)


def of_settings(opened: OpenRun, settings: Sequence[Setting]) -> tuple[Listing, ...]:
    """Commands that replay the run with these settings, and that run the job with those `ddprof run` can apply."""
    listings: tuple[Listing, ...] = ()
    if opened.argument:
        command = ["ddprof", "whatif", opened.argument, *_each("--set", [text_of(setting) for setting in settings])]
        if clean(line := shlex.join(command)) == line:
            listings = (Listing("The same replay in a terminal:", line),)
    fixes = [fix for setting in settings for fix in _as_fix(setting)]
    if not fixes:
        return listings
    stated = [f"{name}={shown(value)}" for fix in fixes for name, value in _set(fix)]
    words = f"One run of the job with {', '.join(stated)}, the script unedited"
    return (*listings, *_listings(opened, (words, ["ddprof", "run", *_each("--set", stated), *_allowed(fixes)])))


def _as_fix(setting: Setting) -> Iterator[WantedFix]:
    """A setting as `ddprof run --set` takes it; nothing for settings of single ranks, or that are not the job's."""
    try:
        if not setting.ranks:
            yield parse_set(applied_as(setting))
    except ValueError:
        return


def of_job(opened: OpenRun) -> tuple[Listing, ...]:
    """All commands to try on the job."""
    return _listings(opened, ("Try the fixes of a diagnosis on the job itself", ["ddprof", "tune"]))


def with_fixes(opened: OpenRun, fixes_file: str, allows_numerics: bool) -> tuple[Listing, ...]:
    """The command that runs the job with a FIXES.toml."""
    if not os.path.isfile(fixes_file):
        return ()
    allowed = ["--allow-numerics"] * allows_numerics
    words = "Run the job with these settings, the script unedited"
    return _listings(opened, (words, ["ddprof", "run", "--apply", _seen_from_there(opened, fixes_file), *allowed]))


def _seen_from_there(opened: OpenRun, path: str) -> str:
    """A path relative to the folder that the command runs in, where it lies below."""
    start = opened.launch.cwd if opened.launch is not None else ""
    return os.path.relpath(path, start) if start and path.startswith(os.path.join(start, "")) else path


def _listings(opened: OpenRun, *offers: tuple[str, Sequence[str]]) -> tuple[Listing, ...]:
    """The commands; none where the job's command is unknown or cannot be copied from a page."""
    launch = opened.launch
    if launch is None:
        return ()
    lines = [f"{shlex.join(start)} -- {launch.command}" for _, start in offers]
    if any(clean(line) != line for line in (*lines, launch.cwd)):
        return ()
    place = f", from {launch.cwd}" if launch.cwd else ""
    return tuple(Listing(f"{words}{place}:", line) for (words, _), line in zip(offers, lines, strict=True))


def _set(fix: WantedFix) -> list[tuple[str, object]]:
    return list(fix.values.items())


def _each(option: str, values: Sequence[str] | dict[str, None]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _allowed(fixes: Sequence[WantedFix]) -> list[str]:
    return ["--allow-numerics"] if any(map(changes_numbers, fixes)) else []


# Trials of `ddprof tune` as rows and sentences.

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
