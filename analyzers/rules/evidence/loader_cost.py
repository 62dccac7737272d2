"""What a batch costs in the loader itself, as the capture timed it inside the workers: CPU, waiting, collating."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.replay.changes.loader.fetch_costs import batch_kind
from ddprof.findings import Evidence
from ddprof.sidecar import TimedFetches
from ddprof.units import format_share, format_us


@dataclass(frozen=True)
class FetchCost:
    """What a batch costs one rank, and the rank's share of the CPUs that its host allows (None: not recorded)."""

    timed: TimedFetches
    cores: int | None

    @property
    def fetch_us(self) -> float:
        """Median time to make a batch."""
        return self.timed.fetch_ns / 1e3

    @property
    def kind(self) -> str | None:
        """What a batch's time goes to: "collate", "cpu", "wait" or "mixed"; None where CPU time was not recorded."""
        return batch_kind(self.timed.cpu_share, self.timed.collate_share)

    def workers_for(self, busy_us: float) -> int:
        """Workers that deliver a batch every `busy_us`, bounded by the cores where each batch needs one."""
        needed = max(1, math.ceil(self.fetch_us / max(busy_us, 1.0)))
        if self.kind in ("cpu", "collate") and self.cores:
            return min(needed, max(1, self.cores))
        return needed


def fetch_cost(facts: RankFacts) -> FetchCost | None:
    """The loader's cost on a rank; None where the capture did not see into it."""
    timed, processors = facts.sidecar.fetching, facts.sidecar.processors
    if timed is None or not timed.fetch_ns:
        return None
    return FetchCost(timed, max(1, processors.usable // (processors.local_ranks or 1)) if processors.usable else None)


_WHAT = {
    "collate": "most of it in the collate function",
    "cpu": "bound by the CPU (decoding, transforms)",
    "wait": "mostly waiting (storage, network, locks)",
    "mixed": "part CPU, part waiting",
}


def evidence(cost: FetchCost, rank: int) -> Evidence:
    """One sentence: who makes a batch, how long it takes, and on what."""
    workers, share = cost.timed.workers, cost.timed.cpu_share
    where = "the training process itself" if not workers else f"each of {workers} workers"
    text = f"{where} takes {format_us(cost.fetch_us)} per batch of {cost.timed.samples} samples"
    if cost.kind is not None and share is not None:
        text += f", {format_share(share)} on the CPU: {_WHAT[cost.kind]}"
    return Evidence(text, rank)
