"""Time that making batches takes each rank, as the capture timed it: whether they are ready, or how long each is
made."""

from __future__ import annotations

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.loader.demand import busy_step_us
from ddprof.analyzers.replay.changes.loader.fetch_costs import needed_workers, rank_costs
from ddprof.tables import Array


def keep_up(measures: Measures) -> Array:
    """True where the workers of each rank, as the capture timed them, make the batches of a step in less than the step
    takes without waiting: they are ready then, and what a fetch takes is handing them over and want of a CPU, which no
    setting of the loader shortens. Bool, shape (ranks,); false where they were not timed, or take turns, and on
    devices, where handing over takes no time of theirs.
    """
    had, busy_us = measures.settings.loader.num_workers or 0, busy_step_us(measures)
    handed = execution_of(measures.job).limits.handover_us > 0
    each = zip(rank_costs(measures, had), measures.job.ranks, measures.host_counts["dataloader"], strict=True)
    return np.array(
        [
            handed
            and cost is not None
            and (timed := facts.sidecar.fetching) is not None
            and timed.workers > 0
            and not cost.turn_ns
            and needed_workers(max(1.0, count) * cost.mean_ns / 1e3, busy_us) <= timed.workers
            for cost, facts, count in each
        ],
        bool,
    )


def made_us(measures: Measures) -> Array:
    """Time that the batches of a step take that the training thread of a rank makes itself, as the capture timed them
    over the whole run, us, shape (ranks,): what a few traced fetches take beyond that is want of a CPU. Infinite where
    they were not timed, or come from workers.
    """
    every = zip(rank_costs(measures, 0), measures.host_counts["dataloader"], measures.job.ranks, strict=True)
    return np.array(
        [
            np.inf
            if cost is None or cost.source != "inline" or facts.sidecar.fetching is None
            else count * cost.mean_ns / 1e3
            for cost, count, facts in every
        ]
    )
