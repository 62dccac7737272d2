"""Why a loader is waited for: its workers, and what a batch costs them, as far as the run tells."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.loader.fetch_costs import FetchCosts, fetch_costs
from ddprof.analyzers.settings.present import present
from ddprof.units import format_us

_GOES_TO = {
    "collate": "most of it putting samples together",
    "cpu": "most of it computing",
    "wait": "most of it waiting for storage or the network",
    "mixed": "partly computing, partly waiting for storage",
}


def loading_words(measures: Measures) -> str:
    """One or two sentences: "4 workers per rank make a batch each 9 ms, and each batch takes one 36 ms."."""
    workers = present(measures, {}).num_workers
    costs = [cost for facts in measures.job.ranks if (cost := fetch_costs(facts, workers)) is not None]
    if not costs:
        if workers is None:
            return "Not recorded: how many workers make the batches; ddprof run records it."
        return f"The run had {workers} worker{'' if workers == 1 else 's'} per rank; what a batch costs was not timed."
    cost_us = float(np.mean([cost.mean_ns for cost in costs])) / 1e3
    goes = _goes_to(costs)
    if not workers:
        return f"The training process makes each batch itself, in {format_us(cost_us)}{goes}: no worker does it beside."
    every = f", so that one is ready each {format_us(cost_us / workers)}" if workers > 1 else ""
    plural = "s make" if workers > 1 else " makes"
    return f"{workers} worker{plural} a rank's batches, each in {format_us(cost_us)}{goes}{every}."


def _goes_to(costs: list[FetchCosts]) -> str:
    kinds = [cost.kind for cost in costs if cost.kind]
    return f" ({_GOES_TO[max(set(kinds), key=kinds.count)]})" if kinds else ""
