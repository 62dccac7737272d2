"""A prediction in a few lines of text, for the terminal and for assistants."""

from __future__ import annotations

from ddprof.analyzers.bottleneck import Bottleneck
from ddprof.analyzers.settings.predict import Prediction
from ddprof.units import format_share, format_unprofiled, format_us


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
