"""The plan and the answer of a tuning as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from textwrap import wrap

from ddprof.report.phrases import calibration_words
from ddprof.slices.tuning.handover import Handover
from ddprof.trials.document import KEEP, KEPT, RunPlan, TrialCandidate, Tried, TuningAnswer
from ddprof.trials.paired import ERROR, LOOKS, MOST_PAIRS, scatter_borne
from ddprof.trials.phrases import (
    limits_words,
    measured_words,
    memory_words,
    predicted_words,
    results_words,
    tuning_headline,
)
from ddprof.units import format_share
from ddprof.untrusted.plain_text import clean

WIDTH = 100
_LABEL = 10
_ASKED = 0.10  # gain, share of the step, whose price is told before anything is run: most are after no less


def plan_text(candidates: Sequence[TrialCandidate], plan: RunPlan, run_s: float, left_s: float) -> list[str]:
    """The planned runs with predicted gains, in lines."""
    lines = [f"{len(candidates)} candidate{'s' * (len(candidates) != 1)}, by predicted gain:"]
    for candidate in candidates:
        lines += _labelled("-", f"{candidate.name}: {predicted_words(candidate.predicted)} ({candidate.finding})")
    lines.append(
        f"Each run is ended after {plan.last} steps, the last {plan.timed} of them timed; a run takes about "
        f"{run_s:.0f} s, {left_s:.0f} s are left for runs with and without each candidate, in turn."
    )
    if candidates and run_s:
        lines.append(_needed(len(candidates), run_s, left_s))
    return lines


def _needed(candidates: int, run_s: float, left_s: float) -> str:
    """Number of runs that a gain needs, and the number within the budget."""
    needs = [
        f"{pairs} pairs ({2 * pairs * run_s:.0f} s) at "
        f"{format_share(scatter_borne(_ASKED, pairs, ERROR / candidates))} noise"
        for pairs in (LOOKS[0], LOOKS[2], MOST_PAIRS)
    ]
    paid = int(left_s / run_s / 2)
    text = f"A gain of {format_share(_ASKED)} takes {', '.join(needs)}"
    if paid < LOOKS[0]:
        enough = math.ceil((2 * LOOKS[0] + 1) * run_s / 60) + 1
        return f"{text}. The budget pays for {paid} pairs, too few to keep anything: give --budget {enough}m or more."
    return f"{text}. The budget pays for {paid} pairs; a decided candidate is run no more."


def result_text(result: TuningAnswer, handover: Handover) -> list[str]:
    """The answer in lines: what to keep, its gain, what was tried."""
    lines = [*wrap(tuning_headline(result), WIDTH), ""]
    if result.verdict == KEEP:
        for candidate in result.chosen:
            lines += _labelled("keep", f"{candidate.name} ({candidate.finding})")
        lines += _of_chosen(result)
        lines.append("")
    if result.tried:
        lines.append("Tried, each against the command as it is, in pairs of runs one after the other:")
        for tried in result.tried:
            lines += _tried(tried)
    for untried in result.untried:
        lines += _labelled("not tried", f"{untried.settings}: {untried.why}")
    lines += _limits(result)
    lines += _handed_over(handover)
    return [clean(line) for line in lines]


def _of_chosen(result: TuningAnswer) -> Iterator[str]:
    kept = [tried for tried in result.tried if tried.state == KEPT]
    last = kept[-1] if kept else None
    if last is not None:
        yield from _labelled("results", results_words(last.results).removeprefix("what is trained: "))
        if last.memory is not None:
            yield from _labelled("memory", memory_words(last.memory, result.baseline_memory))


def _tried(tried: Tried) -> Iterator[str]:
    words = " + ".join(tried.settings)
    beside = f" (beside {' + '.join(tried.beside)})" if tried.beside else ""
    yield from _labelled(tried.state, f"{words}{beside}")
    if tried.measured is not None:
        yield from _labelled("", measured_words(tried.measured, tried.predicted))
    if tried.why:
        yield from _labelled("", tried.why)
    if tried.results.kind in ("differs", "like_baseline"):
        yield from _labelled("", results_words(tried.results))


def _limits(result: TuningAnswer) -> Iterator[str]:
    if words := limits_words(result):
        yield from _labelled("limits", words)
    for finding, calibration in result.calibration.items():
        if words := calibration_words(calibration).removeprefix("; "):
            yield from _labelled("so far", f"{finding}: {words}")
    yield from _labelled("cost", f"{result.runs} run{'s' * (result.runs != 1)}, {result.spent_s:.0f} s")


def _handed_over(handover: Handover) -> Iterator[str]:
    for words, why in handover.by_hand:
        yield from _labelled("by hand", f"{words}: {why}")
    if handover.note:
        yield from _labelled("no patch", handover.note)
    if handover.diff:
        yield ""
        yield from handover.diff.splitlines()


def _labelled(label: str, text: str) -> list[str]:
    # A number stays beside its percent sign: wrap() breaks at plain blanks alone.
    kept = text.replace(" %", "\N{NO-BREAK SPACE}%")
    wrapped = wrap(kept, WIDTH - _LABEL - 2, break_long_words=False, break_on_hyphens=False) or [""]
    lines = [line.replace("\N{NO-BREAK SPACE}", " ") for line in wrapped]
    return [f"  {(label if number == 0 else ''):<{_LABEL}}{line}" for number, line in enumerate(lines)]
