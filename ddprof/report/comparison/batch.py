"""The batch of an optimizer step and its learning rate, from one number of ranks to another."""

from __future__ import annotations

import math

from ddprof.report.model import Report

_EQUAL = 0.02  # of a ratio: batches of an epoch's end make the typical step a little smaller
# Optimizers that divide by the size of the gradients: theory and practice scale their rate by the square root.
_ADAPTIVE = ("adam", "adagrad", "rmsprop", "lion", "lamb", "novograd", "adafactor")
_LINEAR = "Goyal 2017"
_ROOT = "Malladi 2022"


def batch_words(before: Report, after: Report) -> str:
    """What becomes of the batch where the runs differ in their number of ranks; "" where they do not, or where the
    capture does not know it."""
    first, second = before.training, after.training
    old, new = first.samples_per_step, second.samples_per_step
    if before.run.world_size == after.run.world_size or not old or not new:
        return ""
    ratio = new / old
    if abs(ratio - 1) <= _EQUAL:
        return f"an optimizer step takes {old:g} samples in both runs: the learning rate need not change with the ranks"
    words = f"an optimizer step takes {new:g} samples instead of {old:g}"
    rates = first.learning_rate, second.learning_rate
    if not rates[0] or not rates[1]:
        return words + ": its learning rate is not known"
    return f"{words}; {_rate_words(rates[0], rates[1], ratio, first.optimizer)}"


def _rate_words(old: float, new: float, ratio: float, optimizer: str) -> str:
    adaptive = any(name in optimizer.lower() for name in _ADAPTIVE)
    usual = old * (math.sqrt(ratio) if adaptive else ratio)
    rule = f"by the square root rule ({_ROOT})" if adaptive else f"by the linear rule ({_LINEAR}, with a warm-up)"
    said = f"the learning rate stayed {old:g}" if new == old else f"the learning rate went from {old:g} to {new:g}"
    if math.isclose(new, usual, rel_tol=_EQUAL):
        return f"{said}, as {rule}"
    return f"{said}, {rule} it would be {usual:.3g}"
