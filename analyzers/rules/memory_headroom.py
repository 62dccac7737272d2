"""Memory is nearly full, or far from it.

What it detects: how the allocator's peak compares with the device's memory.
Why it costs: near the limit the allocator retries, frees and fragments, and the next longer batch fails. Far below it a
larger batch or less sharding would use the device better.
How the gain is priced: allocator calls inside steps are priced by replay; headroom itself has no price ("info").
How to fix: ZeRO / FSDP stage, activation checkpointing, batch size.
Limits: needs memory events in the trace (profile_memory) or ddprof's capture.
Sources: TensorBoard plugin rule (> 90 %); ZeRO paper (memory per rank by stage).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.findings import Abstention, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_bytes, format_ranks, format_share

FULL = 0.90  # of the device's memory (TensorBoard plugin)


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Peak memory against the device's."""
    shares: dict[int, float] = {}
    for p, facts in enumerate(measures.job.ranks):
        peak = facts.memory.get("peak_reserved_bytes") or facts.memory.get("peak_allocated_bytes")
        total = facts.memory.get("total_bytes")
        if peak and total:
            shares[p] = peak / total
    if not shares:
        yield Abstention(RULE.id, "no memory events in the trace")
        return
    full = [p for p, s in shares.items() if s >= FULL]
    if not full:
        return
    numbers = measures.ranks(full) if len(full) < len(measures.job.ranks) else ()
    worst = max(shares, key=lambda p: shares[p])
    total = measures.job.ranks[worst].memory["total_bytes"]
    churn = bool(measures.host_spans_us["allocator"].any())
    yield Candidate(
        id=RULE.id,
        summary=f"device memory of {format_ranks(numbers)} is {format_share(shares[worst])} full"
        + (" and the allocator frees and maps inside steps" if churn else ""),
        ranks=numbers,
        lost_us=float(np.mean(measures.cause_us("allocator"))),
        changes=(Change("remove_host", target="allocator"),) if churn else (),
        confidence=0.9,
        evidence=(
            Evidence(f"peak {format_share(shares[worst])} of {format_bytes(total)}", measures.job.rank_ids[worst]),
        ),
        fixes=(
            Fix(
                setting="memory",
                current=format_share(shares[worst]),
                suggested="activation checkpointing, a higher ZeRO / FSDP stage, or a smaller microbatch",
                patch="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                why="a full allocator has to free and map memory inside steps, and the next longer batch fails",
                source="PyTorch CUDA memory management notes",
            ),
        ),
        ceiling_us=None if churn else 0.0,
    )


RULE = Rule("memory.headroom", "Device memory is nearly full", detect, bound="memory")
