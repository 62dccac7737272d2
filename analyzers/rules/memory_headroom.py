"""Memory is nearly full, or far from it.

What it detects: how the allocator's peak compares with the device's memory; and forward kernels that the backward pass
computes again (activation checkpointing) although what they compute would fit.
Why it costs: near the limit the allocator retries, frees and fragments, and the next longer batch fails. Far below it
recomputing saves memory that nobody needs, and costs up to a forward pass in every step.
How the gain is priced: allocator calls inside steps are priced by replay; headroom itself has no price ("info").
Recomputing is: the run is replayed without the repeated kernels of as many activations as fit.
How to fix: ZeRO / FSDP stage, activation checkpointing (more of it, or less), batch size.
Limits: needs memory events in the trace (profile_memory) or ddprof's capture. Repeated kernels are found where the
trace names operators; in compiled graphs they are not told from others. What activations need is how much tensors grow
while they are computed again; where only peaks are known, nothing is said of recomputing above half of the memory.
Sources: TensorBoard plugin rule (> 90 %); ZeRO paper (memory per rank by stage).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.rules.evidence.recompute import FULL, memory_unknown, needless_recompute
from ddprof.finding_ids import MEMORY_HEADROOM
from ddprof.findings import Abstention, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.units import format_bytes, format_share


def detect(measures: Measures) -> Iterator[Candidate | Abstention]:
    """Compare peak memory with the device's, and find needless recomputation."""
    shares: dict[int, float] = {}
    for p, facts in enumerate(measures.job.ranks):
        peak = facts.memory.get("peak_reserved_bytes") or facts.memory.get("peak_allocated_bytes")
        total = facts.memory.get("total_bytes")
        if peak and total:
            shares[p] = peak / total
    if not shares:
        yield memory_unknown(measures, "no memory events in the trace")
        return
    full = [p for p, s in shares.items() if s >= FULL]
    if not full:
        yield from needless_recompute(measures)
        return
    numbers = measures.ranks(full) if len(full) < len(measures.job.ranks) else ()
    worst = max(shares, key=lambda p: shares[p])
    total = measures.job.ranks[worst].memory["total_bytes"]
    churn = bool(measures.host_spans_us["allocator"].any())
    yield Candidate(
        id=RULE.id,
        summary=f"device memory of {measures.whom(numbers)} is {format_share(shares[worst])} full"
        + (" and the allocator releases and maps memory inside steps" if churn else ""),
        ranks=numbers,
        lost_us=float(np.mean(measures.cause_us("allocator"))),
        changes=(Change("remove_host", target="allocator"),) if churn else (),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(f"peak {format_share(shares[worst])} of {format_bytes(total)}", measures.job.rank_ids[worst]),
        ),
        fixes=(
            Fix(
                setting="memory",
                current=format_share(shares[worst]),
                suggested="activation checkpointing, a higher ZeRO / FSDP stage, or a smaller microbatch",
                patch="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                why="a full allocator releases and maps memory inside steps, and a longer batch may fail",
                source="PyTorch CUDA memory management notes",
            ),
        ),
        ceiling_us=None if churn else 0.0,
    )


RULE = Rule(MEMORY_HEADROOM, "Device memory is nearly full", detect, bound="memory")
