"""Fixes that may change the trained result: unconditional where the recording shows that it stays the same, else with a
condition for the user to check. The only place that decides this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.traffic.redundant import ACCUMULATION
from ddprof.findings import Alters, Fix

CONDITIONS: Mapping[Alters, str] = {
    Alters.REDUCTIONS: "Check first that nothing zeroes or reads gradients between these backward passes",
    Alters.UPDATES: "Check first that learning rate and schedule suit the larger batch",
    Alters.PRECISION: "Check first that loss and outputs stay as good: precision is lower",
    Alters.ORDER: "Check first that no file, server or other process relies on ranks waiting there",
    Alters.VALUES: "Check first that loss, schedule and early stopping do not read these values",
    Alters.BUFFERS: "Check first that only rank 0 evaluates and saves, and that training reads no buffer that changes",
    Alters.SAMPLES: "Check first that the data set gives each worker samples of its own (get_worker_info)",
    Alters.ZEROS: "Check first that each step gives every parameter a gradient: the optimizer skips one without",
    Alters.PARAMETERS: "Check first that no later pass leaves a parameter out, which would end the job",
    Alters.MEAN: "Check first that the script averages gradients over all ranks in every step, as DDP does",
    Alters.EQUAL: "Check first that these are parameters that DDP updates, with nothing that a rank changes by itself",
    Alters.CHORE: "Check first that training does not need what this line does",
}


def _keeps_gradients(measures: Measures) -> bool:
    """True where gradients of all passes before an update were seen to be summed and not otherwise touched."""
    accumulated = measures.needless.get(ACCUMULATION)
    return accumulated is not None and accumulated.is_proven


def _asks_by_index(measures: Measures) -> bool:
    """True where no loader leaves the choice of samples to its data set, or several workers of each draw already."""
    loaders = [facts.sidecar.loader for facts in measures.job.ranks]
    return all(loader.sampler or not loader.dataset or (loader.num_workers or 0) > 1 for loader in loaders)


_PROOFS: Mapping[Alters, Callable[[Measures], bool]] = {
    Alters.REDUCTIONS: _keeps_gradients,
    Alters.SAMPLES: _asks_by_index,
}


def checked(fix: Fix, measures: Measures) -> Fix:
    """The fix, with a condition where it may change the result and the recording does not show otherwise."""
    alters = fix.alters
    is_proven = alters is None or (alters in _PROOFS and _PROOFS[alters](measures))
    return replace(fix, alters=None, condition="" if is_proven or alters is None else CONDITIONS[alters])
