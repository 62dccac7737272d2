"""The plan and the answer in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from ddprof.outside.plain_text import clean
from ddprof.report.phrases import calibration_words
from ddprof.tune.handover import Handover
from ddprof.tune.model import Predicted, RunPlan, TrialCandidate
from ddprof.tune.result import KEPT, MeasuredGain, Memory, Results, Tried, TuningAnswer
from ddprof.tune.search import KEEP, UNDECIDED
from ddprof.tune.statistics.paired import LOOKS
from ddprof.units import format_bytes, format_share, format_us

WIDTH = 100
_LABEL = 10
_SAME = {
    "same": "what is trained: the same in every bit",
    "like_baseline": "what is trained: differs by {mine} of its size, no more than two runs of the baseline ({own})",
    "differs": "what is trained: differs by {mine} of its size; two runs of the baseline by {own}",
    "unknown": "what is trained: not compared",
}


def plan_text(candidates: Sequence[TrialCandidate], plan: RunPlan, run_s: float, left_s: float) -> list[str]:
    """What is going to be run, with the predicted gains."""
    lines = [f"{len(candidates)} candidate{'s' * (len(candidates) != 1)}, by predicted gain:"]
    for candidate in candidates:
        lines += _labelled("-", f"{candidate.name}: {_predicted(candidate.predicted)} ({candidate.finding})")
    lines.append(
        f"Each run is ended after {plan.last} steps, the last {plan.timed} of them timed; a run takes about "
        f"{run_s:.0f} s, {left_s:.0f} s are left for runs with and without each candidate, in turn."
    )
    return lines


def result_text(result: TuningAnswer, handover: Handover) -> list[str]:
    """The answer: what to keep, what it gains, what was tried."""
    lines = [*_headline(result), ""]
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


def _headline(result: TuningAnswer) -> list[str]:
    gain, step_us, after_us = result.measured, result.step_us, result.after_us
    if result.verdict == KEEP and gain is not None and step_us is not None and after_us is not None:
        text = f"KEEP: {format_share(gain.share)} of the step saved, {format_us(step_us)} -> {format_us(after_us)}"
        return wrap(f"{text} ({_interval(gain)})", WIDTH)
    if result.verdict == UNDECIDED:
        text = "UNDECIDED: the budget was spent before any gain was certain"
        need = f"a run takes about {result.run_s:.0f} s, certainty {LOOKS[0]} to {LOOKS[-1]} pairs of runs"
        return wrap(f"{text} ({need}); go on by --resume with a larger --budget", WIDTH)
    return ["NOTHING TO CHANGE"]


def _of_chosen(result: TuningAnswer) -> Iterator[str]:
    kept = [tried for tried in result.tried if tried.state == KEPT]
    last = kept[-1] if kept else None
    if last is not None:
        yield from _labelled("results", _results(last.results).removeprefix("what is trained: "))
        if last.memory is not None:
            yield from _labelled("memory", _memory(last.memory, result.baseline_memory))


def _tried(tried: Tried) -> Iterator[str]:
    words = " + ".join(tried.settings)
    beside = f" (beside {' + '.join(tried.beside)})" if tried.beside else ""
    yield from _labelled(tried.state, f"{words}{beside}")
    if tried.measured is not None:
        against = f"; predicted {_predicted(tried.predicted)}" if tried.predicted is not None else ""
        yield from _labelled(
            "", f"measured {format_share(tried.measured.share)} ({_interval(tried.measured)}){against}"
        )
    if tried.why:
        yield from _labelled("", tried.why)
    if tried.results.kind in ("differs", "like_baseline"):
        yield from _labelled("", _results(tried.results))


def _interval(gain: MeasuredGain) -> str:
    pairs = f"{gain.pairs} pair{'s' * (gain.pairs != 1)} of runs"
    if gain.low is None or gain.high is None:
        return f"{pairs}: too few for an interval"
    return f"95 % interval {format_share(gain.low)} to {format_share(gain.high)}, {pairs}"


def _predicted(predicted: Predicted | None) -> str:
    if predicted is None:
        return "nothing"
    return f"{format_share(predicted.share)} (range {format_share(predicted.low)} to {format_share(predicted.high)})"


def _results(results: Results) -> str:
    mine = "an unknown part" if results.distance is None else f"{results.distance:.2g}"
    own = "an unknown part" if results.baseline_distance is None else f"{results.baseline_distance:.2g}"
    loss = f"; loss of the last step {results.loss[0]:.6g}, without {results.loss[1]:.6g}" if results.loss else ""
    return _SAME[results.kind].format(mine=mine, own=own) + loss


def _memory(memory: Memory, before: Memory | None) -> str:
    spare = memory.device_bytes - memory.peak_bytes
    was = (
        f", {format_bytes(before.device_bytes - before.peak_bytes)} without the settings" if before is not None else ""
    )
    return f"{format_bytes(spare)} of {format_bytes(memory.device_bytes)} of the fullest device are left{was}"


def _limits(result: TuningAnswer) -> Iterator[str]:
    if result.smallest_share is not None:
        seen = max(result.smallest_share, result.least_share)
        yield from _labelled(
            "limits",
            f"a gain of {format_share(seen)} of the step or more would have been seen in four of five attempts",
        )
    elif not result.tried:
        yield from _labelled(
            "limits",
            f"no setting removes a cause that costs {format_share(result.least_share)} of the step or more; settings "
            "that no finding asks for were not tried",
        )
    known = [words for known in result.calibration.values() if (words := calibration_words(known).removeprefix("; "))]
    if known:
        yield from _labelled("so far", "; ".join(known))
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
