"""Time to make batches on each rank, timed by capture, and whether workers keep up."""

from __future__ import annotations

from operator import attrgetter

import numpy as np

from ddprof.analyzers.execution.choose import execution_of
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.whole_run.cpu_waits import run_shares
from ddprof.analyzers.job.whole_run.unprofiled_steps import average_ns, unprofiled_steps
from ddprof.analyzers.replay.changes.loader.demand import busy_step_us
from ddprof.analyzers.replay.changes.loader.fetch_costs import needed_workers, rank_costs
from ddprof.derived_once import remembered
from ddprof.tables import Array

MOST = 0.5  # of what batches take longer: waiting for a CPU that is more than this explains it (trust/busy_machine.py)


@remembered
def keep_up(measures: Measures) -> Array:
    """Mask of ranks whose workers make a step's batches in less than the step takes without waiting; shape (ranks,).
    There a fetch costs only handing over and want of a CPU, which no loader setting shortens. False where workers were
    not timed or take turns, and on devices, where handing over takes no device time.
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


def lack_cores(measures: Measures, late: Array, others: Array) -> bool:
    """True where workers of the `late` ranks take longer for a batch than those of the `others` because they wait for a
    CPU for that long, on cores that all share: chance decides who waits. False where workers did not count it.
    """
    timed = [facts.sidecar.fetching for facts in measures.job.ranks]
    if any(one is None or one.waited_ns is None for one in timed):
        return False
    took_ns, waited_ns = np.array([(one.fetch_ns, one.waited_ns) for one in timed if one is not None], float).T
    more_ns, more_waited_ns = (np.median(ns[late]) - np.median(ns[others]) for ns in (took_ns, waited_ns))
    run = run_shares(measures.job.ranks)
    return bool(more_waited_ns > MOST * more_ns > 0) and all(run.is_shared(position) for position in late.tolist())


@remembered
def made_us(measures: Measures) -> Array:
    """Time of a rank's training thread to make a step's batches, timed over the whole run, us, shape (ranks,): in the
    data set, or in the loader as a whole, whose sampler and iterator take time too. Traced fetches beyond it are want
    of a CPU. Infinite where untimed, or where workers make them.
    """
    every = zip(rank_costs(measures, 0), measures.host_counts["dataloader"], measures.job.ranks, strict=True)
    return np.array(
        [
            np.inf
            if cost is None or cost.source != "inline" or facts.sidecar.fetching is None
            else max(count * cost.mean_ns / 1e3, usual_loading_us(facts))
            for cost, count, facts in every
        ]
    )


def usual_loading_us(facts: RankFacts) -> float:
    """Median time in the loader of a rank's steps without the profiler, us; 0 where none was timed."""
    return (average_ns(unprofiled_steps(facts), attrgetter("data_ns"), np.median) or 0.0) / 1e3
