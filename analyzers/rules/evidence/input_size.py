"""Ranks with larger batches than their peers: the time that this explains, and the fix."""

from __future__ import annotations

import numpy as np

from ddprof import averages
from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.input_size import batch_words, enlarged_by_script, is_fed_more
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.slowdown import peers
from ddprof.findings import Fix
from ddprof.tables import Array
from ddprof.units import format_ranks


def fed_longer(measures: Measures, time_us: Array) -> Array:
    """Mask of ranks whose larger batches explain their excess over the typical rank in a time of each; shape (ranks,).

    A device's host launches the same kernels for any batch size, so there the device must take longer too. Stages of a
    pipeline are fed different things: a rank is compared with replicas of its stage, or not at all.
    """
    usable = np.isfinite(time_us) & (time_us > 0)
    if not usable.any():
        return np.zeros(len(time_us), bool)
    execution = execution_of(measures.job)
    explained = is_fed_more(measures.job.ranks, np.where(usable, time_us, 0.0) / averages.typical(time_us[usable]))
    with np.errstate(invalid="ignore"):
        longer = measures.work.factor >= 1 + execution.limits.min_work_spread
    has_peer = np.zeros(len(time_us), bool)
    for alike in peers(len(time_us), measures.job.pipeline):
        has_peer[alike] = len(alike) > 1
    return np.asarray(explained & has_peer & (longer | execution.computes_on_host))


def feeding_fix(measures: Measures, numbers: tuple[int, ...], position: int) -> Fix | None:
    """The fix for batches with more samples, or more elements, on some ranks in every step; None where they were not
    counted. `position`: the rank with the largest batches.
    """
    words = batch_words(measures.job.ranks, position)
    if words is None:
        return None
    if "samples" not in words:
        return (_as_loaded if enlarged_by_script(measures.job.ranks) else _of_all_lengths)(numbers, words)
    return Fix(
        setting="batch size of " + format_ranks(numbers),
        suggested="the same on every rank: shards of equal size, and one batch size",
        patch="DataLoader(data, batch_size=B, sampler=DistributedSampler(data))  # one data set, split evenly",
        why=f"{words}: larger batches take longer to fetch, collate and compute, and the others wait",
        source="PyTorch documentation: torch.utils.data.distributed.DistributedSampler",
    )


def _as_loaded(numbers: tuple[int, ...], words: str) -> Fix:
    """The fix for batches that the script enlarges after loading."""
    return Fix(
        f"batches of {format_ranks(numbers)}",
        "as the loader gives them, or the same change on every rank",
        f"{words} in every step: larger batches take longer to compute, and the others wait",
        "OSDI'25 section 5.3",
    )


def _of_all_lengths(numbers: tuple[int, ...], words: str) -> Fix:
    """The fix for batches of longer samples."""
    return Fix(
        f"batches of {format_ranks(numbers)}",
        "as large as on the other ranks: the same batch size, and samples of all lengths on every rank",
        f"{words} in every step: larger batches take longer to compute, and the others wait",
        "OSDI'25 section 5.3",
        patch="DistributedSampler(data, shuffle=True)  # no rank gets the long ones",
    )
