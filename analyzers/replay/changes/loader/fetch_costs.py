"""Time to make one batch: timed in the loader's workers, in the training thread, or by the arrival of batches."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.names import is_fetch_from_workers
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.graph.anchors import BLOCKED_FETCH_NS
from ddprof.tables import Array

# Share of the recording spent waiting for batches. Below it the loader keeps up, and the rate of arrivals is the
# consumer's, not the loader's.
STARVED_SHARE = 0.03
CPU_BOUND = 0.7  # of a batch's time on the CPU: more workers help while there are cores
WAITING = 0.4  # below this the batch mostly waits for storage or network: more workers help beyond the cores
COLLATING = 0.5  # of a batch's time in the collate function
SPARE = 0.2  # workers beyond the exact need, so that batches that take longer do not show (ml-engineering)
WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # counts that are tried and advised


class FetchCosts(Struct, frozen=True):
    """Time of one batch on one rank, ns, and its source."""

    cost_ns: Array
    source: str  # "workers" (timed in them) | "inline" (fetched by the training thread) | "arrivals" (their rate)
    cpu_share: float | None = None  # of that time on a core; None where it was not measured
    collate_share: float | None = None  # of that time in putting samples together
    core_share: float | None = None  # of that time on a core or waiting for one, where the rest of the rank did so too
    turn_ns: float = 0.0  # of it, what only one worker can do at a time; 0: nothing shows that there is any

    @property
    def kind(self) -> str | None:
        """Main part of the time, as `batch_kind` names it."""
        return batch_kind(self.core_share, self.collate_share)

    @property
    def mean_ns(self) -> float:
        """Mean time to make a batch."""
        return float(self.cost_ns.mean())


def batch_kind(core_share: float | None, collate_share: float | None) -> str | None:
    """Main part of a batch's time: "collate", "cpu", "wait" or "mixed"; None where CPU time was not recorded."""
    if core_share is None:
        return None
    if collate_share is not None and collate_share >= COLLATING:
        return "collate"
    return "cpu" if core_share >= CPU_BOUND else "wait" if core_share < WAITING else "mixed"


def core_share(facts: RankFacts) -> float | None:
    """Share of a batch's time spent on a core or runnable; None where CPU time was not recorded.

    On a busy machine computing takes longer without taking more CPU time, and would pass for waiting for storage. Where
    workers did not count their waits for a core, a batch is taken to wait as much as the rest of its rank does for what
    that computes.
    """
    timed, run = facts.sidecar.fetching, facts.sidecar.cpu_waits.run
    if timed is None or timed.cpu_share is None:
        return None
    if timed.waited_share is not None:
        return min(1.0, timed.cpu_share + timed.waited_share)
    stretch = run.waited_ns / run.cpu_ns if run is not None and run.cpu_ns else 0.0
    return min(1.0, timed.cpu_share * (1 + stretch))


def needed_workers(batch_us: float, pace_us: float) -> int:
    """Workers to advise for a batch that takes `batch_us` to make: as many as deliver one every `pace_us`, with a fifth
    to spare. `pace_us`: the step with every batch ready, or what else bounds the rate: the cores, a lock.
    """
    exact = batch_us / max(pace_us, 1.0) * (1 + SPARE)
    return next((count for count in WORKERS if count >= exact and count), max(1, math.ceil(exact)))


def rank_costs(measures: Measures, workers_now: int) -> list[FetchCosts | None]:
    """Batch times of every rank, in rank order."""
    return [fetch_costs(facts, workers_now) for facts in measures.job.ranks]


def takes_from_workers(facts: RankFacts) -> bool:
    """True where names of fetches show that worker processes made the batches; traces lack their number."""
    return bool(is_fetch_from_workers(facts.strings)[facts.spans_of("dataloader")["name"]].any())


def fetch_costs(facts: RankFacts, workers: int | None) -> FetchCosts | None:
    """Batch times of one rank; None where they cannot be known.

    `workers`: DataLoader workers of the recorded run. A loader that keeps up does not show the cost of its batches
    unless its workers were timed.
    """
    timed = facts.sidecar.fetching
    if timed is not None and timed.fetch_ns:
        cost_ns = np.array(timed.fetch_quantiles_ns or [timed.fetch_ns], float)
        turn_ns = float(timed.turn_ns or 0)
        if turn_ns:
            # The others' turns are part of what was timed. The shortest fetches waited for nobody.
            cost_ns = np.array([max(float(cost_ns.min()), turn_ns)])
        source = "workers" if timed.workers else "inline"
        return FetchCosts(cost_ns, source, timed.cpu_share, timed.collate_share, core_share(facts), turn_ns)
    start, end = intervals.union(*facts.spans_of("dataloader").bounds)
    if not len(start) or workers is None:
        return None
    if workers == 0:
        return FetchCosts((end - start).astype(float), "inline")
    waited = np.maximum(end - start - BLOCKED_FETCH_NS, 0)
    if len(end) < 2 or float(waited.sum()) < STARVED_SHARE * float(end[-1] - start[0]):
        return None
    # Starved, the consumer takes batches as they come: W workers deliver W batches in the time that one takes.
    return FetchCosts(np.array([float(end[-1] - end[0]) / (len(end) - 1) * workers]), "arrivals")
