"""A prediction in a few lines of text, with the bottleneck that remains after its changes: the candidates of all rules,
priced on top of the changes.
"""

from __future__ import annotations

from msgspec import Struct

from ddprof.analyzers.diagnose import candidates_of
from ddprof.analyzers.replay.price import Pricer
from ddprof.analyzers.settings.predict import Prediction
from ddprof.causes import CAUSES
from ddprof.findings import WARNING_SHARE, Candidate, Change
from ddprof.units import format_share, format_unprofiled, format_us


class Bottleneck(Struct, frozen=True):
    """The largest remaining cause: a finding's id and words with its gain, or a cause of the ledger."""

    id: str
    words: str
    gain_us: float | None
    ranks: tuple[int, ...] = ()


def bottleneck(prices: Pricer, changes: tuple[Change, ...]) -> Bottleneck:
    """The candidate that saves most on top of `changes`; the largest cause of the step where none saves 3 %."""
    step_us = prices.step_us(changes)
    best: tuple[float, Candidate] | None = None
    for candidate in candidates_of(prices.measures, prices):
        if candidate.changes:
            gain_us = prices.gain_us(candidate, changes)
            if best is None or gain_us > best[0]:
                best = (gain_us, candidate)
    if best is not None and best[0] >= WARNING_SHARE * step_us:
        return Bottleneck(best[1].id, best[1].summary, best[0], best[1].ranks)
    mean = {cause: float(prices.measures.cause_us(cause).mean()) for cause in CAUSES}
    largest = max(mean, key=lambda cause: mean[cause])
    if largest != "compute" and any(change.kind != "scale_compute" for change in changes):
        largest = "compute"  # the ledger is the recorded run's: what was changed there says nothing about now
    return Bottleneck(largest, f"{CAUSES[largest].words}; no further fix above 3 % found", None)


# A prediction in a few lines of text, for the terminal and for assistants.


def prediction_text(prediction: Prediction, then: Bottleneck) -> list[str]:
    """The step before and after with its range, change by change, the bottleneck after, and the certainty."""
    before, after = prediction.before_us, prediction.after_us
    word = "less" if prediction.gain_us >= 0 else "more"
    share = format_share(abs(prediction.gain_us) / before if before else 0.0)
    lines = [
        f"{format_us(before)} -> {format_us(after)} per step: {format_us(abs(prediction.gain_us))} ({share}) {word}, "
        f"{before / after if after > 0 else float('inf'):.2f}x "
        f"(range {format_us(prediction.low_us)} to {format_us(prediction.high_us)})",
        *([format_unprofiled(*prediction.unprofiled_us)] if prediction.unprofiled_us else []),
        "",
        f"  {'as recorded':<34}{format_us(before):>10}",
    ]
    lines += [f"  {level.words:<34}{format_us(level.step_us):>10}   {level.assumption}" for level in prediction.levels]
    gain = "" if then.gain_us is None else f" ({then.id}; a fix would save another {format_us(then.gain_us)})"
    lines += ["", f"then: {then.words}{gain}"]
    if prediction.is_uncertain:
        lines.append(
            f"low confidence: replaying the unmodified run misses its step by {format_share(prediction.replay_error)}"
        )
    return lines
