"""Runs of one job on different numbers of ranks: scaling efficiency, and what becomes of the batch and its rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ddprof.report.model import Report
from ddprof.units import format_share

_EQUAL = 0.02  # of a ratio: batches of an epoch's end make the typical step a little smaller
# Optimizers that divide by the size of the gradients: theory and practice scale their rate by the square root.
_ADAPTIVE = ("adam", "adagrad", "rmsprop", "lion", "lamb", "novograd", "adafactor")
_LINEAR = "Goyal 2017"
_ROOT = "Malladi 2022"


@dataclass(frozen=True)
class Scaling:
    """From `small` to `large` ranks, weak and strong as POP defines them. Which of the two holds depends on the batch,
    which the steps do not tell.
    """

    small: int
    large: int
    weak: float  # each rank keeps its batch: the step should stay as long
    strong: float  # all ranks share one batch: the step should shrink with their number


def scaling(before: Report, after: Report) -> Scaling | None:
    """None where both runs have as many ranks, or another device ran them."""
    first, second = before.run, after.run
    if first.world_size == second.world_size or first.device_name != second.device_name:
        return None
    small, large = (before, after) if first.world_size < second.world_size else (after, before)
    weak = small.steps.wall_us / large.steps.wall_us
    ratio = large.run.world_size / small.run.world_size
    return Scaling(small.run.world_size, large.run.world_size, weak, weak / ratio)


def scaling_words(found: Scaling) -> str:
    """One sentence."""
    return (
        f"scaling from {found.small} to {found.large} ranks: {format_share(found.weak)} efficient if each rank kept "
        f"its batch (weak scaling), {format_share(found.strong)} if they share the same batch (strong scaling)"
    )


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
