"""Ranks with larger batches than their peers: the time that this explains, and the fix."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddprof import averages
from ddprof.analyzers.job.input_size import (
    BY_SCRIPT,
    ELEMENTS,
    OPERANDS,
    PARAMETERS,
    SAMPLES,
    LargerInput,
    is_fed_more,
)
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.slowdown import peers
from ddprof.findings import Fix
from ddprof.tables import Array
from ddprof.units import format_ranks


def fed_longer(measures: Measures, time_us: Array) -> Array:
    """Mask of ranks whose larger batches explain their excess over the typical rank in a time of each; shape (ranks,).

    Stages of a pipeline are fed different things: a rank is compared with replicas of its stage, or not at all.
    """
    usable = np.isfinite(time_us) & (time_us > 0)
    if not usable.any():
        return np.zeros(len(time_us), bool)
    explained = is_fed_more(measures.job.ranks, np.where(usable, time_us, 0.0) / averages.typical(time_us[usable]))
    has_peer = np.zeros(len(time_us), bool)
    for alike in peers(len(time_us), measures.job.pipeline):
        has_peer[alike] = len(alike) > 1
    return np.asarray(explained & has_peer)


_BATCHES = "batches of {}"
_LONGER = "larger batches take longer to compute, and the others wait"
_SPREAD_LOADS = "OSDI'25 section 5.3"
_FIXES = {
    SAMPLES: Fix(
        setting="batch size of {}",
        suggested="the same on every rank: shards of equal size, and one batch size",
        patch="DataLoader(data, batch_size=B, sampler=DistributedSampler(data))  # one data set, split evenly",
        why="larger batches take longer to fetch, collate and compute, and the others wait",
        source="PyTorch documentation: torch.utils.data.distributed.DistributedSampler",
    ),
    ELEMENTS: Fix(
        _BATCHES,
        "as large as on the other ranks: the same batch size, and samples of all lengths on every rank",
        _LONGER,
        _SPREAD_LOADS,
        patch="DistributedSampler(data, shuffle=True)  # no rank gets the long ones",
    ),
    BY_SCRIPT: Fix(_BATCHES, "as the loader gives them, or the same change on every rank", _LONGER, _SPREAD_LOADS),
    PARAMETERS: Fix(
        "parameters of {}",
        "equal shards of each layer on every rank, or layers split by the time they take",
        "larger layers take longer to compute, and the others wait",
        _SPREAD_LOADS,
    ),
    OPERANDS: Fix(
        "input of {}",
        "as large as on the other ranks: equal batches, samples of all lengths, tokens spread evenly over experts",
        "larger inputs take longer to compute, and the others wait",
        _SPREAD_LOADS,
    ),
}


def feeding_fix(larger: LargerInput, numbers: tuple[int, ...]) -> Fix:
    """The fix for input that is larger on some ranks in every step."""
    fix = _FIXES[larger.kind]
    return replace(fix, setting=fix.setting.format(format_ranks(numbers)), why=f"{larger.words}: {fix.why}")
