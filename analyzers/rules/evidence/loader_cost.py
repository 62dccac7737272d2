"""What a batch costs in the loader itself, as the capture timed it inside the workers: CPU, waiting, collating."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ddprof.analyzers.facts.model import RankFacts
from ddprof.findings import Evidence
from ddprof.units import format_share, format_us

CPU_BOUND = 0.7  # of a fetch's time on the CPU: more workers help while there are cores
WAITING = 0.4  # below this the fetch mostly waits for storage or network: more workers help beyond the cores
COLLATING = 0.5  # of a fetch's time in the collate function


@dataclass(frozen=True)
class FetchCost:
    """Medians per batch of one rank (us). `workers` 0: fetched in the training process. None: not recorded."""

    workers: int
    fetch_us: float
    cpu_us: float | None
    collate_us: float | None
    samples: int
    cores: int | None  # this rank's share of the CPUs its host allows

    @property
    def kind(self) -> str | None:
        """ "collate", "cpu", "wait" or "mixed"; None where CPU time was not recorded."""
        if self.cpu_us is None or self.fetch_us <= 0:
            return None
        if self.collate_us is not None and self.collate_us >= COLLATING * self.fetch_us:
            return "collate"
        share = self.cpu_us / self.fetch_us
        return "cpu" if share >= CPU_BOUND else "wait" if share < WAITING else "mixed"

    def workers_for(self, busy_us: float) -> int:
        """Workers that deliver a batch every `busy_us`, bounded by the cores where each batch needs one."""
        needed = max(1, math.ceil(self.fetch_us / max(busy_us, 1.0)))
        if self.kind in ("cpu", "collate") and self.cores:
            return min(needed, max(1, self.cores))
        return needed


def fetch_cost(facts: RankFacts) -> FetchCost | None:
    """The loader's cost on a rank; None where the capture did not see into it."""
    found = facts.sidecar.get("fetching")
    if not isinstance(found, dict) or not found.get("fetch_ns"):
        return None
    cpu, collate = found.get("cpu_ns"), found.get("collate_ns")
    processors = facts.sidecar.get("processors") or {}
    cores = processors.get("usable")
    local = processors.get("local_ranks") or 1
    return FetchCost(
        workers=int(found["workers"]),
        fetch_us=found["fetch_ns"] / 1e3,
        cpu_us=None if cpu is None else cpu / 1e3,
        collate_us=None if collate is None else collate / 1e3,
        samples=int(found.get("samples") or 0),
        cores=max(1, int(cores) // int(local)) if cores else None,
    )


_WHAT = {
    "collate": "most of it in the collate function",
    "cpu": "bound by the CPU (decoding, transforms)",
    "wait": "mostly waiting (storage, network, locks)",
    "mixed": "part CPU, part waiting",
}


def evidence(cost: FetchCost, rank: int) -> Evidence:
    """One sentence: who makes a batch, how long it takes, and on what."""
    where = "the training process itself" if not cost.workers else f"each of {cost.workers} workers"
    text = f"{where} takes {format_us(cost.fetch_us)} per batch of {cost.samples} samples"
    if cost.kind is not None and cost.cpu_us is not None:
        text += f", {format_share(min(1.0, cost.cpu_us / cost.fetch_us))} on the CPU: {_WHAT[cost.kind]}"
    return Evidence(text, rank)
