"""Scaling efficiency from two runs of one job on different numbers of ranks (weak and strong, as POP defines them)."""

from __future__ import annotations

from dataclasses import dataclass

from ddprof.report.model import Report
from ddprof.units import format_share


@dataclass(frozen=True)
class Scaling:
    """From `small` to `large` ranks. Which of the two holds depends on the batch, which the steps do not tell."""

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
