"""Advised number of loader workers, the same for finding, planner and what-if."""

from __future__ import annotations

from msgspec import Struct

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.loader.fetch_costs import WORKERS, needed_workers, rank_costs
from ddprof.analyzers.replay.changes.loader.workers import cores_bound_us


class Demand(Struct, frozen=True):
    """Workers that deliver a batch as fast as they are wanted or can; `limit`: what keeps them from one per step
    ("cores", "turns", "processes": more of them than is reasonable), "" where nothing does.
    """

    workers: int
    limit: str


def busy_step_us(measures: Measures) -> float:
    """The step without waits for batches or for peers that wait for theirs, on the busiest rank."""
    waited = measures.cause_us("dataloader") + measures.cause_us("comm_wait")
    return float((measures.ledger_us.sum(axis=1) - waited).max())


def demand(measures: Measures, busy_us: float, had: int, cores: int, position: int | None = None) -> Demand | None:
    """Workers for the loader of a rank (None: the slowest); None where a batch's cost is not known.

    `busy_us`: the step with every batch ready. `had`: workers of the run. `cores` of a host; 0: unknown. A fetch that
    waits needs no core: cores bound those that compute, nothing but sense the others. There the bound is the largest
    count that is tried (WORKERS): each worker is a process with its own interpreter and copy of the data set.
    """
    every = rank_costs(measures, had)
    costs = [cost for cost in every if cost is not None]
    # Turns first: they are what no number of workers shortens, and the other ranks wait for that rank's batches.
    slowest = max(costs, key=lambda cost: (cost.turn_ns, cost.mean_ns), default=None)
    cost = slowest if position is None else every[position]
    if cost is None:
        return None
    bounds_us = {"": busy_us, "turns": cost.turn_ns / 1e3}
    if cost.kind != "wait":
        bounds_us["cores"] = cores_bound_us(measures, costs, cores, busy_us)
    limit = max(bounds_us, key=lambda name: bounds_us[name])
    batch_us = cost.mean_ns / 1e3
    if limit and had * bounds_us[limit] >= batch_us:
        return Demand(had, limit)  # they are as fast as the limit allows
    wanted = needed_workers(batch_us, bounds_us[limit])
    most = max(WORKERS[-1], had)
    return Demand(min(wanted, most), "processes" if wanted > most else limit)
