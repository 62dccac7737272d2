"""What making one batch takes: timed in the loader's workers, in the training thread, or by how batches arrive."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.graph.anchors import BLOCKED_FETCH_NS
from ddprof.tables import Array

# Share of the recording spent waiting for batches. Below it the loader keeps up, and the rate of arrivals is the
# consumer's, not the loader's.
STARVED_SHARE = 0.03
CPU_BOUND = 0.7  # of a batch's time on the CPU: more workers help while there are cores
WAITING = 0.4  # below this the batch mostly waits for storage or network: more workers help beyond the cores
COLLATING = 0.5  # of a batch's time in the collate function


@dataclass(frozen=True)
class FetchCosts:
    """What making one batch takes on one rank, ns per batch, and where the figure comes from."""

    cost_ns: Array
    source: str  # "workers" (timed in them) | "inline" (fetched by the training thread) | "arrivals" (their rate)
    cpu_share: float | None = None  # of that time on a core; None where it was not measured
    collate_share: float | None = None  # of that time in putting samples together

    @property
    def kind(self) -> str | None:
        """What the time goes to, as `batch_kind` names it."""
        return batch_kind(self.cpu_share, self.collate_share)

    @property
    def mean_ns(self) -> float:
        """Mean time to make a batch."""
        return float(self.cost_ns.mean())


def batch_kind(cpu_share: float | None, collate_share: float | None) -> str | None:
    """What the time of a batch goes to: "collate", "cpu", "wait" or "mixed"; None where CPU time was not recorded."""
    if cpu_share is None:
        return None
    if collate_share is not None and collate_share >= COLLATING:
        return "collate"
    return "cpu" if cpu_share >= CPU_BOUND else "wait" if cpu_share < WAITING else "mixed"


def rank_costs(measures: Measures, workers_now: int) -> list[FetchCosts | None]:
    """Batch times of every rank, in rank order."""
    return [fetch_costs(facts, workers_now) for facts in measures.job.ranks]


def fetch_costs(facts: RankFacts, workers: int | None) -> FetchCosts | None:
    """Batch times of one rank; None where they cannot be known.

    `workers`: DataLoader workers of the recorded run. A loader that keeps up tells nothing of what its batches cost
    unless its workers were timed.
    """
    timed = facts.sidecar.fetching
    if timed is not None and timed.fetch_ns:
        cost_ns = np.array(timed.fetch_quantiles_ns or [timed.fetch_ns], float)
        return FetchCosts(cost_ns, "workers" if timed.workers else "inline", timed.cpu_share, timed.collate_share)
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
