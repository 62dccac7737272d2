"""Sentences on a tuning, for the terminal and the dashboard alike."""

from __future__ import annotations

from ddprof.trials.document import KEEP, REJECTED, UNDECIDED, MeasuredGain, Memory, Predicted, Results, TuningAnswer
from ddprof.trials.paired import LOOKS
from ddprof.units import format_bytes, format_share, format_us

_SAME = {
    "same": "what is trained: the same in every bit",
    "like_baseline": "what is trained: differs by {mine} of its size, no more than two runs of the baseline ({own})",
    "differs": "what is trained: differs by {mine} of its size; two runs of the baseline by {own}",
    "unknown": "what is trained: not compared",
}


def tuning_headline(result: TuningAnswer) -> str:
    """The answer in one line."""
    gain, step_us, after_us = result.measured, result.step_us, result.after_us
    if result.verdict == KEEP and gain is not None and step_us is not None and after_us is not None:
        text = f"KEEP: {format_share(gain.share)} of the step saved, {format_us(step_us)} -> {format_us(after_us)}"
        return f"{text} ({interval_words(gain)})"
    if result.tried and all(tried.state == REJECTED for tried in result.tried):
        text = f"{result.verdict.upper()}: each setting tried changes what is trained (--allow-numerics keeps such)"
        return f"{text}; the diagnosis withdrew other findings" if result.verdict == UNDECIDED else text
    if result.verdict == UNDECIDED and not any(tried.state == UNDECIDED for tried in result.tried):
        return "UNDECIDED: the diagnosis withdrew its findings; tune on a machine that nothing else uses"
    if result.verdict == UNDECIDED:
        text = "UNDECIDED: the budget was spent before any gain was certain"
        need = f"a run takes about {result.run_s:.0f} s, certainty {LOOKS[0]} to {LOOKS[-1]} pairs of runs"
        return f"{text} ({need}); go on by --resume with a larger --budget"
    return "NOTHING TO CHANGE"


def interval_words(gain: MeasuredGain) -> str:
    """The certainty of a measured gain in words."""
    pairs = f"{gain.pairs} pair{'s' * (gain.pairs != 1)} of runs"
    if gain.low is None or gain.high is None:
        return f"{pairs}: too few for an interval"
    return f"95 % interval {format_share(gain.low)} to {format_share(gain.high)}, {pairs}"


def predicted_words(predicted: Predicted | None) -> str:
    """A predicted gain with its range."""
    if predicted is None:
        return "nothing"
    return f"{format_share(predicted.share)} (range {format_share(predicted.low)} to {format_share(predicted.high)})"


def measured_words(measured: MeasuredGain, predicted: Predicted | None) -> str:
    """A measured gain beside the predicted one."""
    against = f"; predicted {predicted_words(predicted)}" if predicted is not None else ""
    return f"measured {format_share(measured.share)} ({interval_words(measured)}){against}"


def results_words(results: Results) -> str:
    """A sentence on whether training with the settings gives the same result."""
    distance = "an unknown part" if results.distance is None else f"{results.distance:.2g}"
    baseline = "an unknown part" if results.baseline_distance is None else f"{results.baseline_distance:.2g}"
    loss = f"; loss of the last step {results.loss[0]:.6g}, without {results.loss[1]:.6g}" if results.loss else ""
    return _SAME[results.kind].format(mine=distance, own=baseline) + loss


def memory_words(memory: Memory, before: Memory | None) -> str:
    """Free memory of the fullest device with the settings and without, in words."""
    spare = memory.device_bytes - memory.peak_bytes
    was = (
        f", {format_bytes(before.device_bytes - before.peak_bytes)} without the settings" if before is not None else ""
    )
    return f"{format_bytes(spare)} of {format_bytes(memory.device_bytes)} of the fullest device are left{was}"


def limits_words(result: TuningAnswer) -> str:
    """The smallest gain that the runs would have shown, in words; "" where unknown."""
    if result.smallest_share is not None:
        seen = max(result.smallest_share, result.least_share)
        return f"a gain of {format_share(seen)} of the step or more would have been seen in four of five attempts"
    if not result.tried and result.verdict != UNDECIDED:
        return (
            f"no setting removes a cause that costs {format_share(result.least_share)} of the step or more; settings "
            "that no finding asks for were not tried"
        )
    return ""
