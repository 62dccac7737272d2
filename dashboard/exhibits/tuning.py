"""Tuning: which settings are worth keeping? Runs of `ddprof tune` with predicted and measured gains."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterator

from ddprof.dashboard.exhibits.parts import try_it
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, Listing, sheet
from ddprof.dashboard.exhibits.parts.try_it import by_gain, forecast_chart, settings_words, short_names, trial_sheet
from ddprof.dashboard.figures.charts import Part, Stacked
from ddprof.dashboard.runs.open_run import OpenRun
from ddprof.dashboard.runs.tunings import Tuning
from ddprof.dashboard.runs.view import View
from ddprof.report.fixes import FILE_NAME
from ddprof.report.phrases import calibration_words
from ddprof.settings.wanted import shown as typed
from ddprof.trials import phrases
from ddprof.trials.document import DIAGNOSIS, KEEP, KEPT, UNDECIDED, Memory, TuningAnswer
from ddprof.trials.paired import WON
from ddprof.units import format_share, format_us
from ddprof.untrusted.plain_text import clean, clean_lines
from ddprof.untrusted.secrets import masked

GIB = 2**30
_WHICH = "Which settings are worth keeping?"


def has_data(view: View) -> bool:
    """True where `ddprof tune` has run the command of this run."""
    return bool(view.opened.tunings)


def shown(view: View) -> Tuning | None:
    """The tuning that the address names, else the run's own one, else the latest."""
    tunings = view.opened.tunings
    named = [tuning for tuning in tunings if tuning.name == view.query.get("tuning")]
    return next(iter(named or tunings), None)


def exhibits(view: View) -> Iterator[Exhibit]:
    """The answer, then its evidence."""
    tuning = shown(view)
    if tuning is None:
        reading = "No tuning yet: `ddprof tune -- COMMAND` tries fixes on this run's command and shows them here."
        yield Exhibit("tuning", _WHICH, reading, sheet((), []), listings=try_it.of_job(view.opened))
        return
    answer = tuning.document.result
    if answer is None:
        yield _unfinished(tuning)
    else:
        yield _answer(view.opened, tuning, answer)
        if answer.tried:
            yield _outcomes(answer)
        yield from _given_up(answer)
        yield from _memory(answer)
        yield from _patch(answer)
    yield _runs(tuning)


def _unfinished(tuning: Tuning) -> Exhibit:
    state = tuning.document
    spent = f"{state.spent_s:.0f} s of a budget of {state.options.budget_s:.0f} s are spent"
    made = f"Runs made: {len(state.trials)}; {spent}."
    reading = f"Not known yet: it goes on, or was ended before its answer. {made}"
    columns = ("candidate", "finding", "predicted (% of the step)", "low (%)", "high (%)")
    rows = [
        (clean(c.name), clean(c.finding), *(100 * s for s in (c.predicted.share, c.predicted.low, c.predicted.high)))
        for c in state.candidates or ()
    ]
    return Exhibit("tuning", _WHICH, reading, sheet(columns, rows), listings=_resume(tuning))


def _answer(opened: OpenRun, tuning: Tuning, answer: TuningAnswer) -> Exhibit:
    sentences = [phrases.tuning_headline(answer)]
    results = [tried.results for tried in answer.tried if tried.state == KEPT]
    if results:  # does training give the same result with it?
        sentences.append(_sentence(phrases.results_words(results[-1])))
    if words := phrases.limits_words(answer):
        sentences.append(_sentence(words))
    sentences.append(f"It took {answer.runs} run{'s' * (answer.runs != 1)}, {answer.spent_s:.0f} s")
    rows = []
    for c in answer.chosen:
        made = (clean(c.at) or "the whole process", clean(c.finding))
        rows += [(n, typed(v) if isinstance(v, (str, bool)) else v, *made) for n, v in c.values.items()]
    kept = sheet(("keep", "value", "made at", "finding"), rows)
    listings: tuple[Listing, ...] = ()
    if answer.verdict == KEEP:
        needs_leave = any(c.changes_numbers for c in answer.chosen)
        listings = try_it.with_fixes(opened, os.path.join(tuning.folder, FILE_NAME), needs_leave)
    elif answer.verdict == UNDECIDED:
        listings = _resume(tuning)
    return Exhibit("tuning", _WHICH, ". ".join(sentences) + ".", kept, listings=listings)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _outcomes(answer: TuningAnswer) -> Exhibit:
    """The chart of trials."""
    trials = by_gain(answer.tried)
    timed = [tried for tried in trials if tried.measured is not None]
    best = timed[0] if timed else None  # what is kept: of values alike another one may be ahead by chance
    sentences = [f"{len(timed)} of {len(trials)} were timed against the command as it is, in pairs of runs"]
    if best is not None and best.measured is not None:
        word = "Kept" if best.state == KEPT else "Largest gain"
        sentences.append(f"{word}: {settings_words(best)}, {phrases.measured_words(best.measured, best.predicted)}")
    for name, calibration in answer.calibration.items():
        if words := calibration_words(calibration).removeprefix("; "):
            sentences.append(f"So far, {clean(name)}: {words}")
    question = "What did each setting gain, and was it predicted?"
    table, reading = trial_sheet(trials), ". ".join(sentences) + "."
    return Exhibit("tuning-trials", question, reading, table, forecast_chart(trials))


_ALSO = {WON: "also won"}


def _given_up(answer: TuningAnswer) -> Iterator[Exhibit]:
    """Exhibit of rejected settings with reasons."""
    lost = [tried for tried in answer.tried if tried.state != KEPT]
    rows = [(settings_words(tried), _ALSO.get(tried.state, tried.state), clean(tried.why)) for tried in lost]
    rows += [(clean(untried.settings), "not tried", clean(untried.why)) for untried in answer.untried]
    if rows:
        counts = Counter(state for _, state, _ in rows)
        reading = "; ".join(f"{count} {state}" for state, count in counts.items()) + "."
        table = sheet(("settings", "what came of it", "why"), rows)
        yield Exhibit("tuning-lost", "What is not kept, and why?", _sentence(reading), table)


def _memory(answer: TuningAnswer) -> Iterator[Exhibit]:
    """Exhibit of the fullest device's memory; none where not recorded, as on CPUs."""
    held = [tried for tried in answer.tried if tried.memory is not None]
    before = answer.baseline_memory
    rows = [("as it is", before), *zip(short_names(held), (tried.memory for tried in held), strict=True)]
    measured = [(name, memory) for name, memory in rows if memory is not None]
    if not measured:
        return
    kept = [tried.memory for tried in held if tried.state == KEPT and tried.memory is not None]
    fullest = min((memory for _, memory in measured), key=_spare)
    words = phrases.memory_words(kept[-1], before) if kept else phrases.memory_words(fullest, None)
    parts = [
        Part("reserved", "reserved at most", "compute", [memory.peak_bytes / GIB for _, memory in measured]),
        Part("free", "free", "line", [max(0, _spare(memory)) / GIB for _, memory in measured]),
    ]
    sizes = [(name, memory.peak_bytes, memory.device_bytes, _spare(memory)) for name, memory in measured]
    table = sheet(("settings", "reserved at most (bytes)", "device (bytes)", "free (bytes)"), sizes)
    chart = Stacked([name for name, _ in measured], parts, "GiB")
    yield Exhibit("tuning-memory", "How much memory of the device is left?", f"{words}.", table, chart)


def _spare(memory: Memory) -> int:
    return memory.device_bytes - memory.peak_bytes


def _patch(answer: TuningAnswer) -> Iterator[Exhibit]:
    """The edit of the script, and the settings that cannot be edited with certainty."""
    if not answer.patch and not answer.by_hand:
        return
    rows = [(clean(words), clean(why)) for words, why in answer.by_hand]
    files = [line.removeprefix("+++ b/") for line in answer.patch.splitlines() if line.startswith("+++ b/")]
    reading = f"A patch of {clean(', '.join(files))}, which git apply takes." if files else "No line can be edited."
    reading += " The settings of the table are to be made by hand." if rows else ""
    listings = (Listing("The patch:", clean_lines(masked(answer.patch))),) if answer.patch else ()
    table = sheet(("by hand", "why"), rows)
    yield Exhibit("tuning-patch", "What is to be changed in the script?", reading, table, listings=listings)


def _runs(tuning: Tuning) -> Exhibit:
    """Every trial in order."""
    trials = tuning.document.trials
    columns = ("run", "settings", "step (ms)", "timed steps", "took (s)", "remark")
    rows = []
    for number, trial in enumerate(trials):
        step_ms = None if trial.step_us is None else trial.step_us / 1e3
        remark = trial.failed or trial.note or ("traced" if trial.label == DIAGNOSIS else "")
        timed = (step_ms, len(trial.steps_us) or None, trial.took_s)
        rows.append((number, clean(trial.label), *timed, clean(remark)))
    plain = [trial.step_us for trial in trials if not trial.settings and trial.label != DIAGNOSIS and trial.step_us]
    reading = f"{len(trials)} run{'s' * (len(trials) != 1)}, in the order in which they were made."
    if len(plain) > 1:
        apart = max(plain) / min(plain) - 1
        reading += (
            f" The command as it is took {format_us(min(plain))} to {format_us(max(plain))} per step in "
            f"{len(plain)} runs, {format_share(apart)} apart."
        )
    return Exhibit("tuning-runs", "Which runs were made?", reading, sheet(columns, rows))


def _resume(tuning: Tuning) -> tuple[Listing, ...]:
    line, place = shlex.join(["ddprof", "tune", "--resume", tuning.folder]), tuning.document.cwd
    return (Listing(f"Go on, from {place}:", line),) if clean(line + place) == line + place else ()
