"""The data loader as torch runs it: W workers take batches in turn, deliver in order, and hold W x prefetch at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import CAUSE, RankFacts
from ddprof.analyzers.replay.graph.anchors import BLOCKED_FETCH_NS
from ddprof.tables import Array

STEPS, SETTLED = 400, 100  # simulated steps, and those left out before the queue is in its steady state
DEFAULT_PREFETCH = 2  # torch's own, per worker
STARVED_SHARE = 0.03  # of the recording spent waiting: below it the loader keeps up, and its pace is not its own
_SEED = 20_240_229


@dataclass(frozen=True)
class FetchCosts:
    """What making one batch takes on one rank, ns per batch, and where the figure comes from."""

    cost_ns: Array
    source: str  # "workers" (timed in them) | "inline" (fetched by the training thread) | "arrivals" (their pace)
    cpu_share: float | None = None  # of that time on a core; None where it was not measured
    collate_share: float | None = None  # of that time in putting samples together

    @property
    def mean_ns(self) -> float:
        """Mean time to make a batch."""
        return float(self.cost_ns.mean())


def fetch_costs(facts: RankFacts, workers: int | None) -> FetchCosts | None:
    """Batch times of one rank; None where they cannot be known.

    `workers`: DataLoader workers of the recorded run. A loader that keeps up tells nothing of what its batches cost
    unless its workers were timed.
    """
    timed = facts.sidecar.get("fetching") or {}
    if timed.get("fetch_ns"):
        return _timed(timed)
    mine = facts.host_spans["cause"] == CAUSE["dataloader"]
    start, end = intervals.union(facts.host_spans["start_ns"][mine], facts.host_spans["end_ns"][mine])
    if not len(start) or workers is None:
        return None
    if workers == 0:
        return FetchCosts((end - start).astype(float), "inline")
    waited = np.maximum(end - start - BLOCKED_FETCH_NS, 0)
    if len(end) < 2 or float(waited.sum()) < STARVED_SHARE * float(end[-1] - start[0]):
        return None
    # Starved, the consumer takes batches as they come: W workers deliver W batches in the time that one takes.
    return FetchCosts(np.array([float(end[-1] - end[0]) / (len(end) - 1) * workers]), "arrivals")


def _timed(timed: Mapping[str, Any]) -> FetchCosts:
    """From what the capture timed: quantiles of the batch times where it kept them, else their median."""
    cost = np.array(timed.get("fetch_quantiles_ns") or [timed["fetch_ns"]], float)
    typical = float(timed["fetch_ns"])
    cpu, collate = (timed.get(key) for key in ("cpu_ns", "collate_ns"))
    return FetchCosts(
        cost,
        "workers" if timed.get("workers") else "inline",
        None if cpu is None else min(1.0, cpu / typical),
        None if collate is None else min(1.0, collate / typical),
    )


def paced_step_ns(step_ns: float, costs: Sequence[Array], workers: int, prefetch: int, busy_ns: Array) -> float:
    """Mean job step in the steady state.

    `step_ns`: the job's step with every batch ready. `busy_ns`: per rank, what of it is its own work, from its batch to
    where it meets the others; all of them wait for the last. `costs`: per rank, batch times (ns), drawn from in random
    order.
    """
    random = np.random.default_rng(_SEED)
    drawn = np.stack([random.choice(cost, STEPS) for cost in costs])
    delivered = np.zeros((len(costs), STEPS))
    ready = np.zeros((len(costs), STEPS))
    own = np.minimum(busy_ns, step_ns)
    shared = step_ns - float(own.max())
    now, ends = 0.0, []
    for step in range(STEPS):
        if workers == 0:
            delivered[:, step] = now + drawn[:, step]
        else:
            free = ready[:, step - workers] if step >= workers else drawn[:, step] * (step % workers) / workers
            window = workers * prefetch
            asked = delivered[:, step - window] if step >= window else np.zeros(len(costs))
            ready[:, step] = np.maximum(free, asked) + drawn[:, step]
            delivered[:, step] = np.maximum(now, ready[:, step])
        now = float((delivered[:, step] + own).max()) + shared
        ends.append(now)
    return (ends[-1] - ends[SETTLED - 1]) / (STEPS - SETTLED)
